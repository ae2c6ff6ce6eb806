"""`fork`: a new job of another's type and payload, its run beginning with the other's history up to a step.

One transaction and one snapshot, so that a purge of the first cannot take its history from between two statements. The
id is minted by the caller, so repeating a call whose reply was lost finds the job it made.
"""

from __future__ import annotations

from uuid import uuid4

import asyncpg

from ...domain.audit import AuditEntry
from ...domain.errors import NotFound
from ...domain.job import Enqueued, JobId, RunId
from ...domain.sealed import Recode
from ..protocol import Wake
from .absent import not_found
from .audit import keep
from .buckets import NEW_RANK
from .database import Database, Raw
from .fork_recoded import recode_copies
from .notify import notify
from .resolve import IS_BEFORE, IS_KEPT
from .rows import plain

_SOURCE = """
select coalesce(j.run_id, j.id) as run_id, s.seq as ends, s.branch, s.number, s.ended_at
from outlast.job j
left join lateral (
  select s.seq, s.branch, s.number, s.ended_at from outlast.step s
  where s.run_id = coalesce(j.run_id, j.id) and s.name = $3) s on true
where j.id = $1 and ($2::text is null or j.tenant = $2)"""

# The time the first was to run at, its start limit and its deadline stay behind, as its key does. Events that were for
# the first are for this one, too: what it drops of the history may be waits that such have ended.
_FORK = f"""
with j as (
  insert into outlast.job(id, name_id, queue, priority, tenant, payload, max_attempts, max_crashes, run_id, parent_id,
    timeout_ms, enqueued_by, traceparent, tags, meta, limit_names, limit_keys, events_from)
  select $2, name_id, queue, priority, tenant, payload, max_attempts, max_crashes, $3, id, timeout_ms, enqueued_by,
    traceparent, tags, meta, limit_names, limit_keys, least(created_at, events_from)
  from outlast.job where id = $1
  on conflict do nothing returning id, name_id, queue, priority, limit_names),
r as (
  insert into outlast.ready(queue, rank, job_id, name_id) select e.queue, {NEW_RANK}, e.id, e.name_id from j e)
select id from j"""  # noqa: S608  a number of our own

_COPY = """
insert into outlast.step(run_id, name, kind, branch, number, value, claim_no, code_version, started_at, ended_at,
  event_seq, child_id)
select $2, name, kind, branch, number, value, claim_no, code_version, started_at, ended_at, event_seq, child_id
from outlast.step where run_id = $1 and seq < coalesce($3::bigint, 9223372036854775807) order by seq"""

# Of what the run waits for only calls that have ended: a body that has gone on from a failure is to meet it again.
_COPY_WAITS = f"""
insert into outlast.wait(job_id, name, kind, branch, number, began_at, code_version, awaited, child_id)
select $2, w.name, w.kind, w.branch, w.number, w.began_at, w.code_version, w.awaited, w.child_id
from (select w.* from outlast.wait w where w.job_id = $1 offset 0) w
where {IS_BEFORE.strip().format(branch="$3", number="$4", end="$5")} and {IS_KEPT.strip()}"""  # noqa: S608  fragments of our own

_RUN_OF = "select coalesce(run_id, id) from outlast.job where id = $1"


async def fork(
    db: Database,
    job_id: JobId,
    *,
    new_id: JobId,
    from_step: str | None = None,
    tenant: str | None = None,
    audit: AuditEntry | None = None,
    recode: Recode | None = None,
) -> Enqueued:
    """Make a new job with a job's history.

    Raises:
        JobNotFound: no such job, or another tenant's.
        NotFound: the run has not recorded the step.
        PayloadUnreadable: `recode` cannot read what is to be copied.
    """
    run_id = RunId(uuid4())

    async def once(conn: Raw) -> RunId | None:
        try:
            return await look(conn)
        except asyncpg.SerializationError:
            return await look(conn)  # the same fork was committed meanwhile: this snapshot has it

    async def look(conn: Raw) -> RunId | None:
        async with conn.transaction(isolation="repeatable_read"):
            source = await conn.fetchrow(db.in_schema(_SOURCE), job_id, tenant, from_step)
            if source is None:
                raise not_found(job_id)
            known = await conn.fetchval(db.in_schema(_RUN_OF), new_id)
            if known is not None:
                return RunId(plain(known))
            if from_step is not None and source["ends"] is None:
                raise no_step(job_id, from_step)
            made = await conn.fetch(db.in_schema(_FORK), job_id, new_id, run_id)
            if made:
                await conn.execute(db.in_schema(_COPY), source["run_id"], run_id, source["ends"])
                until = source["branch"], source["number"], source["ended_at"]
                await conn.execute(db.in_schema(_COPY_WAITS), job_id, new_id, *until)
                if recode is not None:
                    await recode_copies(db, conn, recode, was=job_id, now=new_id)
                await keep(db, conn, audit)
                return None
            return RunId(plain(await conn.fetchval(db.in_schema(_RUN_OF), new_id)))

    known = await db.run(once)
    if known is None:
        await notify(db, Wake.READY)
    return Enqueued(id=new_id, run_id=run_id if known is None else known, deduped=False)


def no_step(job_id: JobId, name: str) -> NotFound:
    """Give the answer for a step that a run has not recorded."""
    return NotFound(
        f"the run of job {job_id} has no recorded step {name!a}", fix="name a step that the run has recorded"
    )
