"""Enqueue: envelopes, first tokens, keys and sources in one statement; refusals and lost races are its answers.

Owns the statement and its repetition: a key or source that moved while it ran is read again until there is a row or
a job that holds it. Limits, fingerprints and templates are admission's. Called by every producer.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...domain.errors import OutlastError, RequestInvalid
from ...domain.job import Enqueued, NewJob
from ..protocol import Wake
from .database import Database, Raw
from .enqueue_batch import Batch, HalfWonError
from .enqueue_lane import EnqueueLane
from .names import name_ids
from .notify import notify
from .sqlstate import Taken

MAX_BATCH = 50_000
# Each repetition means that somebody else committed in between.
_TRIES = 10

# `n` takes its transaction id before it draws from the sequence, so that whoever reads a number knows that every lower
# one belongs to a transaction that was in progress by then. `known` is answered from the snapshot and locks nothing;
# only what looks free goes on to the inserts, keys and sources in order. An ended key past its window is taken over.
# `is_own` is scalar: `exists` may be planned as a hash of all jobs.
ENQUEUE = """
with n as materialized (
  select i.*, case when i.due is null or i.due <= outlast.clock() then nextval('outlast.token_seq') end as seq
  from (
    select u.*, coalesce(u.run_at, outlast.clock() + u.delay) as due
    from unnest($1::int[], $2::uuid[], $3::int[], $4::text[], $5::smallint[], $6::text[], $7::text[], $8::smallint[],
      $9::smallint[], $10::text[], $11::uuid[], $12::bigint[], $13::interval[], $14::timestamptz[], $15::interval[],
      $16::interval[], $17::interval[], $18::bigint[], $19::uuid[], $20::uuid[], $21::text[], $22::text[],
      $23::text[], $24::text[])
    u(ord, id, name_id, queue, priority, tenant, payload, max_attempts, max_crashes, key, hash, fp, dedupe_for, run_at,
      delay, max_queue_time, deadline, timeout_ms, source_id, parent_id, enqueued_by, traceparent, tags, meta)) i
  where (select pg_current_xact_id()) is not null),
known as materialized (
  select n.ord, coalesce(s.job_id, l.job_id) as job_id, s.job_id is not null as by_source, l.fp <> n.fp as mismatch,
    l.expires_at, s.job_id is null and (select true from outlast.job j where j.id = n.id) is not null as is_own
  from n
  left join lateral (select s.job_id from outlast.source s where s.source_id = n.source_id offset 0) s on true
  left join lateral (
    select l.job_id, l.fp, l.expires_at from outlast.live_key l
    where l.hash = n.hash and (not l.ended or l.expires_at > outlast.clock()) offset 0) l on true
  where s.job_id is not null or l.job_id is not null),
f as not materialized (select * from n where ord not in (select ord from known)),
s as (
  insert into outlast.source(source_id, job_id, expires_at)
  select source_id, id, outlast.clock() + interval '90 days' from f where source_id is not null order by source_id
  on conflict do nothing returning job_id),
k as (
  insert into outlast.live_key as l(hash, job_id, fp, expires_at)
  select hash, id, fp, outlast.clock() + dedupe_for from f where hash is not null order by hash
  on conflict (hash) do update
    set job_id = excluded.job_id, fp = excluded.fp, expires_at = excluded.expires_at, ended = false
    where l.ended and l.expires_at <= outlast.clock()
  returning job_id),
a as not materialized (
  select * from f where (hash is null or id in (select job_id from k))
    and (source_id is null or id in (select job_id from s))),
j as (
  insert into outlast.job(id, seq, name_id, queue, priority, tenant, payload, max_attempts, max_crashes, run_at, key,
    key_hash, fp, source_id, parent_id, deadline_at, timeout_ms, enqueued_by, traceparent, tags, meta)
  select id, seq, name_id, queue, priority, tenant, payload, max_attempts, max_crashes, due, key, hash,
    case when hash is not null then fp end, source_id,
    parent_id, outlast.clock() + deadline, timeout_ms, enqueued_by, traceparent, tags::text[], meta from a),
r as (
  insert into outlast.ready(queue, rank, seq, job_id, name_id, moved, since)
  select queue, priority * 2 + 1, seq, id, name_id, false, null from a where seq is not null),
w as (
  insert into outlast.waiting(due_at, job_id, queue, rank, name_id)
  select due, id, queue, priority * 2 + 1, name_id from a where seq is null),
e as (
  insert into outlast.expiry(job_id, kind, at)
  select id, 0, outlast.clock() + max_queue_time from a where max_queue_time is not null
  union all select id, 1, outlast.clock() + deadline from a where deadline is not null)
select ord, 'known' as how, job_id, by_source, is_own, mismatch, expires_at, false as half,
  (select j.run_id from outlast.job j where j.id = known.job_id) as run_id
from known
union all
select ord, 'lost', null, null, null, null, null, (id in (select job_id from k)) or (id in (select job_id from s)), null
from f where (hash is not null or source_id is not null) and ord not in (select ord from a)
union all
select ord, 'stored', null, null, null, null, outlast.clock() + dedupe_for, false, null
from a where dedupe_for is not null
"""

_KNOWN_IDS = """
select u.ord, j.run_id, l.expires_at from unnest($1::int[], $2::uuid[]) u(ord, id)
cross join lateral (select j.run_id, j.key_hash from outlast.job j where j.id = u.id offset 0) j
left join lateral (
  select l.expires_at from outlast.live_key l where l.hash = j.key_hash and l.job_id = u.id offset 0) l on true
"""

_REMEMBER_SOURCES = """
insert into outlast.source(source_id, job_id, expires_at)
select u.source_id, u.job_id, outlast.clock() + interval '90 days'
from unnest($1::uuid[], $2::uuid[]) u(source_id, job_id)
order by u.source_id on conflict do nothing
"""


async def enqueue(db: Database, lane: EnqueueLane, job: NewJob) -> Enqueued:
    """Store one job, durable when this returns; repeating the same id is safe.

    Raises:
        JobDuplicate: its key is taken and `on_conflict` is `error`.
        IdempotencyMismatch: its key belongs to a job with another payload.
    """
    if job.key is None or job.source_id is None:
        return await lane.enqueue(job)
    # Key and source are two rows to win: only a transaction can give one back when the other is lost.
    batch = await _store(db, (job,), is_atomic=True)
    return batch.in_order()[0]


async def enqueue_many(db: Database, jobs: Sequence[NewJob]) -> tuple[Enqueued, ...]:
    """Store all jobs or none, in one transaction; answers in order.

    Raises:
        RequestInvalid: more jobs than a batch may have.
        OutlastError: the first refusal, its `index` in the details; nothing is stored then.
    """
    if len(jobs) > MAX_BATCH:
        raise RequestInvalid(
            f"a batch of {len(jobs)} jobs is over the limit of {MAX_BATCH}",
            fix=f"send batches of at most {MAX_BATCH} jobs",
        )
    return (await _store(db, jobs, is_atomic=True, is_many=True)).in_order() if jobs else ()


async def store_each(db: Database, jobs: Sequence[NewJob]) -> tuple[Enqueued | OutlastError, ...]:
    """Store jobs of callers that do not know each other, in one statement: what is refused leaves the others stored."""
    return (await _store(db, jobs, is_atomic=False)).verdicts()


async def _store(db: Database, jobs: Sequence[NewJob], *, is_atomic: bool, is_many: bool = False) -> Batch:
    names = await name_ids(db, (job.name for job in jobs))
    tries = 0

    async def once(conn: Raw) -> Batch:
        batch = Batch(jobs, names)
        if tries:
            # An id that is there already is this very job: an earlier call ended without its caller knowing how.
            batch.repeated(await conn.fetch(db.in_schema(_KNOWN_IDS), *batch.ids()))
        if is_atomic:
            async with conn.transaction():
                await _send(db, conn, batch)
                batch.refuse(is_many=is_many)
        else:
            await _send(db, conn, batch)
        return batch

    batch = None
    while batch is None:
        try:
            batch = await db.run(once)
        except (Taken, HalfWonError):
            tries += 1
            if tries >= _TRIES:
                raise
    if batch.has_ready:
        await notify(db, Wake.READY)
    if batch.has_delayed:
        await notify(db, Wake.DELAYED)
    return batch


async def _send(db: Database, conn: Raw, batch: Batch) -> None:
    """Send until every job is answered or refused; what lost a race is sent again and finds the winner."""
    while batch.is_pending:
        batch.read(await conn.fetch(db.in_schema(ENQUEUE), *batch.columns()))
    sources, holders = batch.sources_to_remember()
    if sources:
        # A republish must find this job even after the key that led here is free again.
        await conn.execute(db.in_schema(_REMEMBER_SOURCES), sources, holders)
