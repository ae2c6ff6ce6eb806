"""The second history: what the database saw of every token, held against what really ran.

Triggers of the test's own write each insert and delete of a token, a key, a slot, a job or an occurrence into an audit
table, and every change of a schedule or of a limit's number. A move is the delete and the insert of one transaction.
The rules are those of `checkers` and `grid`.
"""

from __future__ import annotations

import json
from collections.abc import Container, Hashable, Iterable
from uuid import UUID

from app.domain.job import Counters, JobId
from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.faults import checkers, grid
from tests.faults.checkers import Account, Ended, Move, Start
from tests.faults.history_limits import check_limits, note_rules
from tests.faults.written import Asked, Write
from tests.support.ledger import Event
from tests.support.store import Store

_FINISHED = {0: State.DONE, 2: State.DEAD, 4: State.CANCELLED}
_STATE_OF = {
    "ready": State.READY,
    "gate": State.READY,
    "waiting": State.DELAYED,
    "running": State.RUNNING,
    "suspended": State.SUSPENDED,
    "held": State.HELD,
}
_SNOOZE = 2

_AUDIT = """
create table outlast.test_audit(
  id bigint generated always as identity primary key, txid bigint not null default txid_current(), place text not null,
  op text not null, job_id uuid, row jsonb not null, at timestamptz not null default clock_timestamp(),
  began timestamptz not null default now(), seen pg_snapshot not null default pg_current_snapshot(),
  suspends bool not null default (current_query() like '%.suspended(job_id, queue, rank,%'));
create function outlast.test_audit() returns trigger language plpgsql as $$
declare r jsonb := to_jsonb(case when tg_op = 'DELETE' then old else new end) - 'payload';
begin
  if tg_op = 'UPDATE' and tg_table_name = 'schedule' then r := r || jsonb_build_object('was', to_jsonb(old)); end if;
  insert into outlast.test_audit(place, op, job_id, row)
  values (tg_table_name, tg_op, coalesce(r ->> 'job_id', r ->> 'id')::uuid, r);
  return null;
end $$;
"""
_NO_TOKENS = ("live_key", "step", "job", "schedule", "occurrence", "slot", "limit_rule")
_WATCHED = (*_STATE_OF, "finished", *_NO_TOKENS)
_NOBODY = UUID(int=0)


async def audit(database: Asked) -> None:
    """Begin to write the second history."""
    for statement in _AUDIT.split(";\ncreate function"):
        text = statement if "create table" in statement else f"create function{statement}"
        await database.fetch(text)
    for table in _WATCHED:
        await database.fetch(
            f"create trigger test_audit after insert or update or delete on outlast.{table}"
            " for each row execute function outlast.test_audit()"
        )
    await note_rules(database)


async def writes(database: Asked) -> list[Write]:
    """Give the second history in order."""
    rows = await database.fetch(
        "select id, txid, place, op, coalesce(job_id, $1) as job_id, row::text, extract(epoch from at)::float8 as at,"
        " extract(epoch from began)::float8 as began, seen::text, suspends from outlast.test_audit order by id",
        _NOBODY,
    )
    return [Write(**{**dict(row), "row": json.loads(row["row"])}) for row in rows]


_Parts = dict[int, dict[UUID, dict[str, Write]]]  # by transaction and job, the delete and the insert of a move


def commits(history: Iterable[Write]) -> list[list[Move]]:
    """Join deletes and inserts of one transaction into moves: for each transaction its moves, in order."""
    return [[_move(job_id, part) for job_id, part in jobs.items()] for jobs in _joined(history).values()]


def in_order(history: Iterable[Write], jobs: Container[UUID]) -> list[Move]:
    """Give the moves of some jobs in the order in which they were written, across transactions that wrote by turns.

    Who waited for what another transaction held has written after it.
    """
    found = [
        (max(write.id for write in part.values()), _move(job_id, part))
        for parts in _joined(write for write in history if write.job_id in jobs).values()
        for job_id, part in parts.items()
    ]
    return [move for _, move in sorted(found, key=lambda each: each[0])]


def _joined(history: Iterable[Write]) -> _Parts:
    parts: _Parts = {}
    for write in history:
        if write.place in _NO_TOKENS or write.op == "UPDATE":
            continue
        part = parts.setdefault(write.txid, {}).setdefault(write.job_id, {})
        assert write.op not in part, f"two moves of {write.job_id} in one transaction"
        part[write.op] = write
    return parts


def _move(job_id: UUID, part: dict[str, Write]) -> Move:
    gone, came = part.get("DELETE"), part.get("INSERT")
    row = (came or gone or next(iter(part.values()))).row
    return Move(
        job=job_id,
        source=None if gone is None else _state(gone),
        target=None if came is None else _state(came),
        claim_no=row["claim_no"],
        is_snooze=came is not None and (came.suspends or (came.place == "waiting" and row["reason"] == _SNOOZE)),
    )


def _state(write: Write) -> State:
    return _FINISHED[write.row["state"]] if write.place == "finished" else _STATE_OF[write.place]


async def check(store: Store, effects: Iterable[Event], *, acked: Iterable[JobId] = ()) -> list[Move]:
    """Hold a quiet store to every rule; `acked` are jobs whose enqueue was answered. Gives the moves."""
    moves = await hold(store)
    starts = [
        Start(job=UUID(str(event.job)), claim_no=int(event.epoch or 0))
        for event in effects
        if event.op == "effect" and event.type == "invoke"
    ]
    known = {row["id"] for row in await store.fetch("select id from outlast.job")}
    checkers.nothing_lost(known=known, asked=None, acked=acked, ran={start.job for start in starts})
    rows = await store.fetch("select job_id, number, outcome from outlast.attempt")
    ended = {(row["job_id"], row["number"]): OutcomeKind(row["outcome"]) for row in rows}
    checkers.explained(starts, moves, ended)
    accounts = await _accounts(store)
    checkers.counted(accounts, revived=checkers.retried_by_hand(moves))
    checkers.dead_with_reason(accounts)
    await check_limits(store, await writes(store))
    return moves


async def hold(store: Store) -> list[Move]:
    """Hold a store to the rules that need nothing but its own history and hold at every instant. Gives the moves."""
    await _in_one_bucket(store)
    await _keys_are_held(store)
    history = await writes(store)
    checkers.made_once(write.job_id for write in history if (write.place, write.op) == ("job", "INSERT"))
    key_of = keys_of(history)
    checkers.one_live_job_a_key(([move] for move in in_order(history, key_of)), key_of)
    grid.check(history)
    moves = [move for commit in commits(history) for move in commit]
    checkers.legal(moves)
    checkers.fenced(moves)
    rewritten = [write for write in history if write.place == "finished" and write.op == "UPDATE"]
    assert not rewritten, f"terminal rows were rewritten: {rewritten}"
    store.held_to = history[-1].id if history else 0
    return moves


async def hold_what_is_new(store: Store) -> None:
    """Hold a store to them unless nothing has been written since it was."""
    ((last,),) = await store.fetch("select coalesce(max(id), 0) from outlast.test_audit")
    if last != store.held_to:
        await hold(store)


async def _in_one_bucket(store: Store) -> None:
    """K1: every job is in exactly one bucket."""
    places = ("ready", "gate", "waiting", "running", "held", "suspended", "finished")
    every = " union all ".join(f"select job_id from outlast.{place}" for place in places)
    doubled = await store.fetch(f"select job_id, count(*) from ({every}) t group by job_id having count(*) <> 1")
    assert not doubled, f"jobs in more than one bucket: {doubled}"
    nowhere = " and ".join(f"not exists (select from outlast.{place} where job_id = j.id)" for place in places)
    homeless = await store.fetch(f"select id from outlast.job j where {nowhere}")
    assert not homeless, f"jobs in no bucket: {homeless}"


async def _accounts(store: Store) -> list[Account]:
    """Give the account of every job: of finished ones in one look, of the others one by one."""
    ledgers = await _ledgers(store)
    rows = await store.fetch(
        "select j.id, f.state, f.reason, f.attempt, f.claim_no, f.crashes, f.interrupts, j.max_attempts, j.max_crashes"
        " from outlast.job j left join outlast.finished f on f.job_id = j.id"
    )
    return [
        await _account(store, JobId(row["id"]))
        if row["state"] is None
        else Account(
            job=row["id"],
            state=_FINISHED[row["state"]],
            reason=row["reason"],
            counters=Counters(row["attempt"], row["claim_no"], row["crashes"], row["interrupts"]),
            max_attempts=row["max_attempts"],
            max_crashes=row["max_crashes"],
            ledger=ledgers.get(row["id"], ()),
        )
        for row in rows
    ]


async def _ledgers(store: Store) -> dict[UUID, list[Ended]]:
    ledgers: dict[UUID, list[Ended]] = {}
    for row in await store.fetch("select job_id, outcome, counted from outlast.attempt order by job_id, number"):
        ended = Ended(outcome=OutcomeKind(row["outcome"]), counted=row["counted"])
        ledgers.setdefault(row["job_id"], []).append(ended)
    return ledgers


async def _account(store: Store, job_id: JobId) -> Account:
    view = await store.view(job_id)
    return Account(
        job=job_id,
        state=view.state,
        reason=view.state_reason,
        counters=view.counters,
        max_attempts=view.max_attempts,
        max_crashes=view.max_crashes,
        ledger=[
            Ended(outcome=row.outcome, counted=row.counted)
            for row in await store.attempts(job_id)
            if row.outcome is not OutcomeKind.COMPLETED
        ],
    )


def keys_of(history: Iterable[Write]) -> dict[UUID, Hashable]:
    """Give tenant, name and key of every job that has a key, of those that are gone by now, too."""
    return {
        write.job_id: (write.row["tenant"], write.row["name_id"], write.row["key"])
        for write in history
        if (write.place, write.op) == ("job", "INSERT") and write.row["key"] is not None
    }


async def _keys_are_held(store: Store) -> None:
    """K2: a live job holds its key."""
    loose = await store.fetch(
        "select id from outlast.job j where key is not null"
        " and not exists (select from outlast.finished where job_id = j.id)"
        " and not exists (select from outlast.live_key where hash = j.key_hash and job_id = j.id and not ended)"
    )
    assert not loose, f"live jobs whose keys are free: {loose}"
