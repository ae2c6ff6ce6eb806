"""The second history and the checkers: what the database saw of every token, against what really ran.

Triggers of the test's own write each insert and delete of a token, a key or a ledger row into an audit table. A move
is the delete and the insert of one transaction. The checkers are those that every run must pass, whatever it does.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.domain.job import JobId
from app.domain.outcome import RULE_OF, OutcomeKind
from app.domain.state import LIVE, TERMINAL, State, is_legal
from tests.support.ledger import Event
from tests.support.store import Store

_FINISHED = {0: State.DONE, 2: State.DEAD, 4: State.CANCELLED}
_STATE_OF = {"ready": State.READY, "waiting": State.DELAYED, "running": State.RUNNING, "held": State.HELD}
_SNOOZE = 2

_AUDIT = """
create table outlast.test_audit(
  id bigint generated always as identity primary key, txid bigint not null default txid_current(), place text not null,
  op text not null, job_id uuid, row jsonb not null, at timestamptz not null default clock_timestamp());
create function outlast.test_audit() returns trigger language plpgsql as $$
declare r jsonb := to_jsonb(case when tg_op = 'DELETE' then old else new end);
begin
  insert into outlast.test_audit(place, op, job_id, row) values (tg_table_name, tg_op, (r ->> 'job_id')::uuid, r);
  return null;
end $$;
"""
_WATCHED = ("ready", "waiting", "running", "held", "finished", "live_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One audited row."""

    id: int
    txid: int
    place: str
    op: str
    job_id: UUID
    row: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One move of a job's token; `source` is None for a new job, `target` None for a deleted one."""

    job_id: UUID
    source: State | None
    target: State | None
    before: dict[str, Any]
    after: dict[str, Any]


async def audit(store: Store) -> None:
    """Begin to write the second history."""
    for statement in _AUDIT.split(";\ncreate function"):
        text = statement if "create table" in statement else f"create function{statement}"
        await store.fetch(text)
    for table in _WATCHED:
        await store.fetch(
            f"create trigger test_audit after insert or update or delete on outlast.{table}"
            " for each row execute function outlast.test_audit()"
        )


async def writes(store: Store) -> list[Write]:
    """Give the second history in order."""
    rows = await store.fetch("select id, txid, place, op, job_id, row::text from outlast.test_audit order by id")
    return [Write(**{**dict(row), "row": json.loads(row["row"])}) for row in rows]


def moves(history: Iterable[Write]) -> list[Move]:
    """Join deletes and inserts of one transaction into moves, in order."""
    parts: dict[tuple[int, UUID], dict[str, Write]] = {}
    for write in history:
        if write.place == "live_key" or write.op == "UPDATE":
            continue
        part = parts.setdefault((write.txid, write.job_id), {})
        assert write.op not in part, f"two moves of {write.job_id} in one transaction"
        part[write.op] = write
    found = []
    for (_, job_id), part in parts.items():
        gone, came = part.get("DELETE"), part.get("INSERT")
        found.append(
            Move(
                job_id=job_id,
                source=None if gone is None else _state(gone),
                target=None if came is None else _state(came),
                before={} if gone is None else gone.row,
                after={} if came is None else came.row,
            )
        )
    return found


def _state(write: Write) -> State:
    return _FINISHED[write.row["state"]] if write.place == "finished" else _STATE_OF[write.place]


async def check(store: Store, effects: Iterable[Event], *, acked: Iterable[JobId] = ()) -> list[Move]:
    """Hold a quiet store to every rule; `acked` are jobs whose enqueue was answered. Gives the moves."""
    history = await writes(store)
    found = moves(history)
    events = [event for event in effects if event.op == "effect"]
    await _nothing_lost(store, events, acked)
    _legal(found, history)
    _fenced(found)
    await _explained(store, events, found)
    await _counted(store, found)
    return found


async def _nothing_lost(store: Store, events: list[Event], acked: Iterable[JobId]) -> None:
    """K1: acknowledged jobs are there, terminal or live; nothing ran that was never asked for."""
    known = {row["id"] for row in await store.fetch("select id from outlast.job")}
    assert set(acked) <= known, "an acknowledged job is lost"
    assert {UUID(str(event.job)) for event in events} <= known, "something ran that was never enqueued"
    doubled = await store.fetch(
        "select job_id, count(*) from (select job_id from outlast.ready union all select job_id from outlast.waiting"
        " union all select job_id from outlast.running union all select job_id from outlast.held"
        " union all select job_id from outlast.finished) t group by job_id having count(*) <> 1"
    )
    assert not doubled, f"jobs in more than one bucket: {doubled}"
    homeless = await store.fetch(
        "select id from outlast.job j where not exists (select from outlast.ready where job_id = j.id)"
        " and not exists (select from outlast.waiting where job_id = j.id)"
        " and not exists (select from outlast.running where job_id = j.id)"
        " and not exists (select from outlast.held where job_id = j.id)"
        " and not exists (select from outlast.finished where job_id = j.id)"
    )
    assert not homeless, f"jobs in no bucket: {homeless}"


def _legal(found: list[Move], history: list[Write]) -> None:
    """K6: every move is in the table, terminal rows are never rewritten."""
    for move in found:
        if move.target is not None:
            assert is_legal(move.source, move.target), f"{move.job_id}: {move.source} -> {move.target}"
    rewritten = [write for write in history if write.place == "finished" and write.op == "UPDATE"]
    assert not rewritten, f"terminal rows were rewritten: {rewritten}"


def _fenced(found: list[Move]) -> None:
    """K4: claim numbers grow and never repeat; what closes an attempt carries the newest."""
    newest: dict[UUID, int] = defaultdict(int)
    for move in found:
        number = (move.after or move.before)["claim_no"]
        if move.target is State.RUNNING:
            assert number == newest[move.job_id] + 1, f"{move.job_id}: claim {number} after {newest[move.job_id]}"
            newest[move.job_id] = number
        else:
            assert number == newest[move.job_id], f"{move.job_id}: a write of claim {number} was accepted"


async def _explained(store: Store, events: list[Event], found: list[Move]) -> None:
    """K3: every start but the first follows an end that allows another."""
    snoozed = {
        (move.job_id, move.after["claim_no"])
        for move in found
        if move.target is State.DELAYED and move.after["reason"] == _SNOOZE
    }
    starts = [(UUID(str(event.job)), int(event.epoch or 0)) for event in events if event.type == "invoke"]
    assert len(starts) == len(set(starts)), "one claim was begun twice"
    begun = set(starts)
    rows = await store.fetch("select job_id, number, outcome from outlast.attempt")
    ended = {(row["job_id"], row["number"]): OutcomeKind(row["outcome"]) for row in rows}
    revived = {move.job_id for move in found if move.source in TERMINAL and move.target in LIVE}
    for job_id, epoch in starts:
        before = (job_id, epoch - 1)
        if epoch > 1 and before in begun and before not in snoozed:
            why = ended.get(before)
            assert why is not None, f"{job_id}: start {epoch} follows nothing that allows it"
            assert why is not OutcomeKind.CANCELLED or job_id in revived, f"{job_id} ran after its cancel"


async def _counted(store: Store, found: list[Move]) -> None:
    """K7: the counters are what the ledger adds up to, for jobs nobody retried by hand."""
    revived = {move.job_id for move in found if move.source in TERMINAL and move.target in LIVE}
    for row in await store.fetch("select id from outlast.job"):
        if row["id"] in revived:
            continue
        view = await store.view(JobId(row["id"]))
        attempts = [a for a in await store.attempts(view.id) if a.outcome is not OutcomeKind.COMPLETED]
        counted = sum(attempt.counted for attempt in attempts)
        extra = 1 if view.state in {State.RUNNING, State.DONE} else 0
        assert all(attempt.counted == RULE_OF[attempt.outcome].counted for attempt in attempts)
        assert view.counters.attempt == counted + extra, f"{view.id}: attempt {view.counters.attempt}, ledger {counted}"
        crashes = sum(attempt.outcome is OutcomeKind.CRASHED for attempt in attempts)
        assert view.counters.crashes <= crashes
        assert view.counters.crashes == min(crashes, view.max_crashes - 1) or view.state is State.DEAD
        interrupts = sum(attempt.outcome is OutcomeKind.INTERRUPTED for attempt in attempts)
        assert view.counters.interrupts == interrupts, f"{view.id}: {view.counters.interrupts} != {interrupts}"


def one_live_job_a_key(history: Iterable[Write], key_of: dict[UUID, UUID]) -> None:
    """K2: at every audited instant at most one job of a key has a token that is live."""
    live: dict[UUID, set[UUID]] = defaultdict(set)
    transactions: dict[int, list[Write]] = defaultdict(list)
    for write in history:
        transactions[write.txid].append(write)
    for batch in transactions.values():
        for write in sorted(batch, key=lambda write: write.op != "DELETE"):
            key = key_of.get(write.job_id)
            if key is None or write.place in {"live_key", "finished"}:
                continue
            if write.op == "DELETE":
                live[key].discard(write.job_id)
            elif write.op == "INSERT":
                live[key].add(write.job_id)
        for key, jobs in live.items():
            assert len(jobs) <= 1, f"key {key} is held by {jobs} at once"
