"""Whether work goes on after a fault: a fixed load in a closed loop, and what the database counts of it.

The same number of jobs is under way at any time, so that jobs done in equal windows can be compared; the best window
counts, since a busy machine makes some of them poor. Instants of a body are on the machine's clock, which is the
database's too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.domain.errors import DriverUnavailable
from app.domain.job import JobId
from tests.support.drivers import new_job
from tests.support.ledger import Event
from tests.support.processes import LEASE, POLL, SLACK, SWEEP, report
from tests.support.store import Store

WINDOW_SECONDS = 2.0
STEP_SECONDS = 0.25
ENOUGH = 0.95
RECOVERY_SECONDS = max(30.0, 3 * LEASE)
RESTART_SECONDS = LEASE + SWEEP + 1
OLDEST_READY_SECONDS = 2 * POLL

_WINDOW = """
select count(*) as done from outlast.finished
where finished_at >= clock_timestamp() - $1 * interval '1 s' and state = 0"""


# --- the load ---------------------------------------------------------------------------------------------------------


class Load:
    """Keeps `depth` jobs of 100 ms under way. `acked` are those whose enqueue was answered."""

    def __init__(self, store: Store, *, depth: int) -> None:
        self._store = store
        self._depth = depth
        self._under_way: list[JobId] = []
        self.acked: list[JobId] = []
        self.is_over = False

    async def run(self) -> None:
        """Top up until told that it is over; a store that is away is asked again."""
        while not self.is_over:
            try:
                await self._top_up()
            except DriverUnavailable:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.01)

    async def _top_up(self) -> None:
        finished = await self._store.fetch(
            "select job_id from outlast.finished where job_id = any($1::uuid[])", self._under_way
        )
        gone = {row["job_id"] for row in finished}
        self._under_way = [job_id for job_id in self._under_way if job_id not in gone]
        more = [new_job("faults.take") for _ in range(self._depth - len(self._under_way))]
        if more:
            await self._store.driver.enqueue_many(more)
            ids = [new.id for new in more]
            self._under_way += ids
            self.acked += ids


@asynccontextmanager
async def load_on(store: Store, *, depth: int) -> AsyncIterator[Load]:
    """Load a store while the context is open."""
    load = Load(store, depth=depth)
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run())
        try:
            yield load
        finally:
            load.is_over = True


# --- throughput -------------------------------------------------------------------------------------------------------


async def done_in_window(store: Store) -> int:
    """Count what was done in the window that ends now."""
    (row,) = await store.fetch(_WINDOW, WINDOW_SECONDS)
    done: int = row["done"]
    return done


async def usual(store: Store) -> int:
    """Give what a window counts when nothing is wrong: of one that begins now."""
    await asyncio.sleep(WINDOW_SECONDS)
    return await done_in_window(store)


async def recovered(store: Store, before: int, *, within: float = RECOVERY_SECONDS) -> float:
    """Come back once a window after the fault counts 95 % of one before; gives the seconds since it healed.

    Raises:
        AssertionError: the best of the windows within `within` seconds counts less.
    """
    healed, best = time.monotonic(), 0
    await asyncio.sleep(WINDOW_SECONDS)  # the first window that lies behind the fault whole
    while True:
        best = max(best, await done_in_window(store))
        took = time.monotonic() - healed
        if best >= ENOUGH * before:
            report(f"{before} jobs in {WINDOW_SECONDS:g} s before, {best} {took:.1f} s after; promised {within:g} s")
            return took
        assert took < within, f"{before} jobs in {WINDOW_SECONDS:g} s before the fault, after it {best} at best"
        await asyncio.sleep(STEP_SECONDS)


async def nothing_waits(store: Store, *, within: float = RECOVERY_SECONDS) -> None:
    """Come back once the oldest ready job is younger than promised."""
    began = time.monotonic()
    while (oldest := await _oldest_ready(store)) >= OLDEST_READY_SECONDS:
        assert time.monotonic() - began < within, f"the oldest ready job waits for {oldest:.2f} s"
        await asyncio.sleep(0.05)
    report(f"the oldest ready job waits for {oldest:.3f} s; promised {OLDEST_READY_SECONDS:g} s")


async def _oldest_ready(store: Store) -> float:
    stats = await store.driver.stats()
    return max((queue.oldest_ready_seconds or 0.0 for queue in stats.queues), default=0.0)


# --- orphans ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A job whose worker is gone: when that was last heard of, and under which claim it had begun."""

    job: JobId
    claim_no: int
    last_heard: datetime


async def orphans_of(store: Store, pid: int) -> list[Orphan]:
    """Give the jobs that a killed worker has in hand; to be asked before they are found."""
    rows = await store.fetch(
        """
        select r.job_id, r.claim_no, w.renewed_at from outlast.running r join outlast.worker w on w.id = r.worker
        where w.pid = $1""",
        pid,
    )
    return [Orphan(job=row["job_id"], claim_no=row["claim_no"], last_heard=row["renewed_at"]) for row in rows]


def restarted(orphans: Iterable[Orphan], effects: Iterable[Event], *, slack: float = SLACK) -> float:
    """Hold that each began again in time; gives the longest wait in seconds since its worker was last heard of."""
    again: dict[tuple[UUID, int], float] = {}
    for event in effects:
        if event.op == "effect" and event.type == "invoke":
            again[UUID(str(event.job)), int(event.epoch or 0)] = event.wall
    waits = {orphan.job: _wait(orphan, again) for orphan in orphans}
    longest = max(waits.values())
    report(f"{len(waits)} orphans, restarted within {longest:.2f} s; promised {RESTART_SECONDS:g} s")
    late = {str(job): wait for job, wait in waits.items() if wait > RESTART_SECONDS * slack}
    assert not late, f"restarted late, in seconds after the last sign of their worker: {late}"
    return longest


def _wait(orphan: Orphan, again: Mapping[tuple[UUID, int], float]) -> float:
    begun = again.get((orphan.job, orphan.claim_no + 1))
    return float("inf") if begun is None else begun - orphan.last_heard.timestamp()
