"""What was recorded of workers that left, put together for the rules of leaving: ledger, audit, reports, exits.

All instants of a departure are on the clock that the machine's processes share; the database's are brought to it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from app.domain.drain import DrainView
from tests.faults.checkers import Body, Departure, Resumed, Taken
from tests.faults.written import Write
from tests.support.ledger import Event
from tests.support.processes import Service
from tests.support.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A worker's process that was told to leave and has; instants of the shared clock."""

    worker: Service
    asked: float
    gone: float
    code: int


class Claim(NamedTuple):
    """A claim of a job."""

    job: UUID
    number: int


async def departures(
    store: Store,
    events: Sequence[Event],
    history: Sequence[Write],
    left: Sequence[Left],
    *,
    readers: Mapping[UUID, int],
) -> list[Departure]:
    """Give what each of these workers did on leaving; bodies of `readers` wait, in so many starts, for their signal."""
    to_shared = time.monotonic() - time.time()
    ids = {row["pid"]: row["id"] for row in await store.fetch("select id, pid from outlast.worker")}
    claims: dict[int, list[float]] = defaultdict(list)
    released: dict[Claim, float] = {}
    for write in history:
        if write.op == "INSERT" and write.place == "running":
            claims[write.row["worker"]].append(write.at + to_shared)
        elif write.op == "INSERT" and write.place == "ready" and write.row["rank"] % 2 == 0:
            released.setdefault(Claim(write.job_id, write.row["claim_no"]), write.at + to_shared)
    reports = {view.worker_id: view for view in await store.driver.drains(limit=len(ids))}
    by_process: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        by_process[event.pid].append(event)
    return [
        Departure(
            worker=f"worker {ids[one.worker.pid]}, {one.worker.name}",
            asked=one.asked,
            gone=one.gone,
            claims=claims[ids[one.worker.pid]],
            starts=[event.mono for event in by_process[one.worker.pid] if _is(event, "invoke")],
            bodies=list(bodies_at(by_process[one.worker.pid], one.asked, released, readers)),
            fates=_fates(reports[ids[one.worker.pid]]),
        )
        for one in left
    ]


def _is(event: Event, kind: str) -> bool:
    return event.op == "effect" and event.type == kind


def _claim(event: Event) -> Claim:
    return Claim(UUID(str(event.job)), int(event.epoch or 0))


def _fates(report: DrainView) -> dict[Claim, str]:
    return {Claim(one.run.job_id, one.run.claim_no): one.run.fate for one in report.runs}


def bodies_at(
    events: Sequence[Event], asked: float, released: Mapping[Claim, float], readers: Mapping[UUID, int]
) -> Iterator[Body]:
    """Give the bodies of one process that had begun and not ended when it was told to leave.

    One that does not wait in this start may end while the word is on its way, and has nothing to read.
    """
    begun = {_claim(event): event for event in events if _is(event, "invoke") and event.mono < asked}
    ended = {_claim(event): event.mono for event in events if _is(event, "ok") or _is(event, "fail")}
    told: dict[Claim, float] = {}
    for event in events:
        if event.op == "told":
            told.setdefault(_claim(event), event.mono)
    running = {claim: event for claim, event in begun.items() if ended.get(claim, asked) >= asked}
    # Whatever waits for a loop that is blocked reads nothing, also when it was just about to be; bodies in threads do.
    is_blocked = any(
        _is(event, "invoke") and event.detail["name"] == "faults.block" and _claim(event) not in ended
        for event in events
    )
    for claim, event in running.items():
        can_read = not (is_blocked and event.detail["name"] == "faults.hold")
        yield Body(
            job=claim.job,
            claim_no=claim.number,
            must_read=can_read and claim.number <= readers.get(claim.job, 0),
            told=told.get(claim),
            ended=ended.get(claim),
            released=released.get(claim),
        )


# --- who comes first --------------------------------------------------------------------------------------------------


def resumed(history: Sequence[Write]) -> list[Resumed]:
    """Give every job that came back ahead of new work, from when another saw it there until it was claimed."""
    claimed = {(w.job_id, w.row["claim_no"]): w.began for w in history if (w.op, w.place) == ("INSERT", "running")}
    return [
        Resumed(
            job=write.job_id,
            rank=write.row["rank"],
            visible=next((after.at for after in history[place:] if _sees(after, write)), float("inf")),
            claimed=claimed.get((write.job_id, write.row["claim_no"] + 1), float("inf")),
        )
        for place, write in enumerate(history)
        if (write.op, write.place) == ("INSERT", "ready") and write.row["rank"] % 2 == 0
    ]


def taken(history: Iterable[Write]) -> list[Taken]:
    """Give every claim of a job that was new in its lane."""
    return [
        Taken(job=write.job_id, rank=write.row["rank"], began=write.began, written=write.at)
        for write in history
        if (write.op, write.place) == ("INSERT", "running") and write.row["rank"] % 2 == 1
    ]


def overtakings(history: Iterable[Write]) -> int:
    """Count the claims of resumed jobs that had new ones of their priority waiting: where order could go wrong."""
    waiting: dict[int, set[UUID]] = defaultdict(set)
    count = 0
    for write in history:
        if write.place == "ready" and write.op == "INSERT":
            waiting[write.row["rank"]].add(write.job_id)
        elif write.place == "ready" and write.op == "DELETE":
            waiting[write.row["rank"]].discard(write.job_id)
        elif write.place == "running" and write.op == "INSERT" and write.row["rank"] % 2 == 0:
            count += bool(waiting[write.row["rank"] + 1])
    return count


def _sees(after: Write, write: Write) -> bool:
    """Say whether what was written had been committed when another transaction wrote later.

    Its own snapshots say nothing of that: they do not list their own transaction as running, and once a younger one has
    ended it lies below their upper bound, as if it had too.
    """
    low, high, running = after.seen.split(":")
    had_ended = write.txid < int(low) or (write.txid < int(high) and str(write.txid) not in running.split(","))
    return had_ended and after.txid != write.txid
