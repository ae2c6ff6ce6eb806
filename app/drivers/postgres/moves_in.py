"""`receive`, `give_back`: jobs of `moving` rows are stored as they were, each under its id and at most once.

The target remembers a move like a source, for as long: one that comes again is known by that, whatever has become of
its job. Keys are won like those of enqueues. Rows of a job are copied as they are, but what numbers mean here is drawn
here: its name, its place in the order of the queue, the order of its history. Events that its run has taken belong to
the store they were in; their numbers are kept negative, which no event here has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from ...domain.audit import AuditEntry
from ...domain.moving import Moving, Verdict
from ..protocol import Wake
from .audit import keep
from .database import Database, Raw, Row
from .moves_callbacks import told_here
from .names import name_ids
from .notify import notify
from .rows import plain
from .run_locks import looking

REMEMBER = """
insert into outlast.source(source_id, job_id, expires_at)
select u.source_id, u.job_id, outlast.clock() + interval '90 days'
from unnest($1::uuid[], $2::uuid[]) u(source_id, job_id)
order by u.source_id on conflict do nothing returning source_id"""
FORGET = "delete from outlast.source where source_id = any($1::uuid[])"

# A key is won like that of an enqueue, and by the job that has it already.
TAKE_KEYS = """
insert into outlast.live_key as l(hash, job_id, fp, expires_at)
select u.* from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::timestamptz[]) u(hash, job_id, fp, expires_at)
order by u.hash
on conflict (hash) do update
  set job_id = excluded.job_id, fp = excluded.fp, expires_at = excluded.expires_at, ended = false
  where l.job_id = excluded.job_id or (l.ended and l.expires_at <= outlast.clock())
returning l.hash"""

_RECORDS = "cross join lateral json_populate_recordset(null::outlast.{table}, d.doc -> '{part}') x"
_COUNTERS = "attempt, claim_no, crashes, interrupts"


def _records(table: str, part: str) -> str:
    return f"from d join j on j.id = d.job_id {_RECORDS.format(table=table, part=part)}"


# `$4`: the jobs come back to the store they were in. `$5`: callbacks that are not as they were there.
STORE = f"""
with d as materialized (
  select u.ord, u.job_id, u.name_id, u.doc::json as doc, u.callback
  from unnest($1::uuid[], $2::int[], $3::text[], $5::text[]) with ordinality u(job_id, name_id, doc, callback, ord)),
j as (
  insert into outlast.job select (e.r).* from (
    select json_populate_record(
      json_populate_record(null::outlast.job, d.doc -> 'job'),
      json_build_object(
        'name_id', d.name_id, 'seq', null,
        'callback', coalesce(d.callback, d.doc -> 'job' ->> 'callback'))) as r
    from d order by d.ord offset 0) e
  on conflict (id) do nothing returning id, created_at),
k as materialized (
  select d.ord, d.job_id, d.name_id, j.created_at, t.*
  from d join j on j.id = d.job_id
  cross join lateral json_to_record(d.doc -> 'token') t(
    queue text, rank smallint, attempt smallint, claim_no int, crashes smallint, interrupts smallint,
    since timestamptz, due_at timestamptz, reason smallint)),
rdy as (
  insert into outlast.ready(queue, rank, job_id, name_id, {_COUNTERS}, since)
  select queue, rank, job_id, name_id, {_COUNTERS}, coalesce(since, created_at) from k
  where due_at is null order by ord),
wai as (
  insert into outlast.waiting(queue, rank, job_id, name_id, {_COUNTERS}, due_at, reason)
  select queue, rank, job_id, name_id, {_COUNTERS}, due_at, reason from k where due_at is not null),
exp as (insert into outlast.expiry select x.* {_records("expiry", "expiries")}),
pro as (insert into outlast.progress select x.* {_records("progress", "progress")}),
lin as (
  insert into outlast.run_line(job_id, at, claim_no, message)
  select x.job_id, x.at, x.claim_no, x.message {_records("run_line", "lines")} order by d.ord, x.seq),
stp as (
  insert into outlast.step(run_id, name, kind, branch, number, value, claim_no, code_version, started_at, ended_at,
    event_seq, child_id)
  select x.run_id, x.name, x.kind, x.branch, x.number, x.value, x.claim_no, x.code_version, x.started_at, x.ended_at,
    case when $4::boolean then x.event_seq else -abs(x.event_seq) end, x.child_id
  {_records("step", "steps")} order by d.ord, x.seq),
att as (
  insert into outlast.attempt(job_id, number, outcome, cause, counted, worker, host, code_version, started_at, ended_at,
    step, error_type, error_message, error_code, traceback)
  select x.job_id, x.number, x.outcome, x.cause, x.counted, case when $4::boolean then x.worker end, x.host,
    x.code_version, x.started_at, x.ended_at, x.step, x.error_type, x.error_message, x.error_code, x.traceback
  {_records("attempt", "attempts")})
select id from j"""  # noqa: S608  fragments of our own

_TAKE_BACK = "delete from outlast.moving where id = any($1::uuid[]) returning id, job_id, name, document, seq"


class _Key(NamedTuple):
    """The key that a job brings."""

    move: UUID
    job_id: UUID
    hash: UUID
    fp: int
    expires_at: datetime | None


async def receive(db: Database, jobs: Sequence[Moving], *, audit: AuditEntry | None) -> Mapping[UUID, Verdict]:
    """Store jobs of another store."""
    names = await name_ids(db, {job.name for job in jobs})

    async def once(conn: Raw) -> dict[UUID, Verdict]:
        async with looking(conn):
            rows = await conn.fetch(db.in_schema(REMEMBER), [job.id for job in jobs], [job.job_id for job in jobs])
            new = {plain(row["source_id"]) for row in rows}
            brought = {job.id: json.loads(job.document) for job in jobs if job.id in new}
            told = await told_here(db, conn, brought)
            untold = dict.fromkeys(told.unknown, Verdict.NO_WEBHOOK)
            taken = await _take_keys(db, conn, [_key_of(move, brought[move]) for move in new - told.unknown])
            refused = untold | dict.fromkeys(taken, Verdict.KEY_TAKEN)
            if refused:
                await conn.execute(db.in_schema(FORGET), sorted(refused))
            fresh = [job for job in jobs if job.id in new - refused.keys()]
            stored = await _store(db, conn, fresh, names, told.callbacks, is_back=False)
            if stored:
                await keep(db, conn, audit)
        verdicts = dict.fromkeys((job.id for job in jobs), Verdict.MOVED)
        verdicts |= {job.id: Verdict.THERE for job in fresh if job.job_id not in stored}
        return verdicts | refused

    verdicts = await db.run(once)
    await notify(db, Wake.READY, Wake.DELAYED)
    return verdicts


async def give_back(db: Database, moves: Sequence[UUID]) -> frozenset[UUID]:
    """Put jobs back into their queues, behind what is ready; the keys have never been free."""

    async def once(conn: Raw) -> frozenset[UUID]:
        async with looking(conn):
            rows = await conn.fetch(db.in_schema(_TAKE_BACK), list(moves))
            jobs = [_moving(row) for row in sorted(rows, key=lambda row: int(row["seq"]))]
            await _store(db, conn, jobs, names, {}, is_back=True)
        return frozenset(job.id for job in jobs)

    names = await _names_of(db, moves)
    given = await db.run(once)
    await notify(db, Wake.READY, Wake.DELAYED)
    return given


async def _names_of(db: Database, moves: Sequence[UUID]) -> dict[str, int]:
    sql = db.in_schema("select distinct name from outlast.moving where id = any($1::uuid[])")
    rows = await db.run(lambda conn: conn.fetch(sql, list(moves)))
    return await name_ids(db, {row["name"] for row in rows})


async def _take_keys(db: Database, conn: Raw, brought: Sequence[_Key | None]) -> set[UUID]:
    """Win the keys of jobs; gives the moves whose key another job has."""
    keys = [key for key in brought if key is not None]
    if not keys:
        return set()
    columns = ([key.hash for key in keys], [key.job_id for key in keys], [key.fp for key in keys])
    rows = await conn.fetch(db.in_schema(TAKE_KEYS), *columns, [key.expires_at for key in keys])
    won = {plain(row["hash"]) for row in rows}
    return {key.move for key in keys if key.hash not in won}


async def _store(
    db: Database,
    conn: Raw,
    jobs: Sequence[Moving],
    names: Mapping[str, int],
    callbacks: Mapping[UUID, str | None],
    *,
    is_back: bool,
) -> set[UUID]:
    """Store jobs with all their rows; gives the ids of those that were not there."""
    if not jobs:
        return set()
    columns = ([job.job_id for job in jobs], [names[job.name] for job in jobs], [job.document for job in jobs])
    rows = await conn.fetch(db.in_schema(STORE), *columns, is_back, [callbacks.get(job.id) for job in jobs])
    return {plain(row["id"]) for row in rows}


def _key_of(move: UUID, document: Mapping[str, Any]) -> _Key | None:
    envelope = document["job"]
    if envelope["key_hash"] is None:
        return None
    ends = document["key_expires_at"]
    return _Key(
        move=move,
        job_id=UUID(envelope["id"]),
        hash=UUID(envelope["key_hash"]),
        fp=envelope["fp"],
        expires_at=None if ends is None else datetime.fromisoformat(ends),
    )


def _moving(row: Row) -> Moving:
    return Moving(id=plain(row["id"]), job_id=row["job_id"], name=row["name"], document=row["document"])
