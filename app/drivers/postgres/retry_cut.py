"""Retry of a run that does not go on as it is: cut back to before a step, or begun anew.

One transaction: what is dropped of the run and the move of its token, of a held job too. The token is locked first, so
that nobody else gives the job another life meanwhile; children that the run still waits for are cancelled. Called by
`retry`.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID, uuid4

from ...domain.audit import AuditEntry
from ...domain.job import JobId
from .audit import keep
from .buckets import CANCELLED, DEAD, NEW_RANK
from .cancel import Before, cancel_children, tell_of_children
from .database import Database, Raw, Row
from .fork import no_step
from .run_locks import looking

# A held job has its key still.
_FROM_HELD = f"""
with h as (
  delete from outlast.held where job_id = (
    select j.id from outlast.job j where j.id = $1 and ($2::text is null or j.tenant = $2))
  returning job_id, claim_no, interrupts),
r as (
  insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
  select e.queue, {NEW_RANK}, h.job_id, e.name_id, 0, h.claim_no, 0, h.interrupts
  from h join outlast.job e on e.id = h.job_id),
o as (
  update outlast.job set run_at = null, deadline_at = null
  where id = any(array(select job_id from h)) and (run_at is not null or deadline_at is not null)),
x as (delete from outlast.expiry where job_id = any(array(select job_id from h)))
select job_id from h"""  # noqa: S608  same

# Locked, so that nobody else gives the job another life while its run is cut back.
_STOPPED = f"""
with e as materialized (
  select j.id, coalesce(j.run_id, j.id) as run_id from outlast.job j
  where j.id = $1 and ($2::text is null or j.tenant = $2)),
f as materialized (
  select job_id from outlast.finished
  where job_id = (select id from e) and state in ({DEAD}, {CANCELLED}) for update),
h as materialized (select job_id from outlast.held where job_id = (select id from e) for update)
select e.run_id, exists (select from f) as has_ended, exists (select from h) as is_held,
  s.seq as cut, s.branch, s.number, s.ended_at
from e left join lateral (
  select s.seq, s.branch, s.number, s.ended_at from outlast.step s
  where s.run_id = e.run_id and s.name = $3) s on true"""  # noqa: S608  same
_CUT = "delete from outlast.step where run_id = $1 and seq >= coalesce($2::bigint, 0)"
_ANEW = """
with j as (update outlast.job set run_id = $2 where id = $1),
l as (delete from outlast.run_line where job_id = $1)
delete from outlast.progress where job_id = $1"""


class Cut(NamedTuple):
    """What of a run is dropped: all of it, or a step and what was recorded after it."""

    is_fresh: bool
    from_step: str | None


async def retry_cut(
    db: Database, retry: str, job_id: JobId, cut: Cut, *, tenant: str | None, audit: AuditEntry | None = None
) -> Row | None:
    """Cut a run back and make its job ready, an ended one by the statement `retry`; None: it is in no state for that.

    Raises:
        NotFound: the run has not recorded the step; nothing is changed then.
    """
    cancelled: list[UUID] = []

    async def once(conn: Raw) -> Row | None:
        cancelled.clear()
        async with looking(conn):
            stopped = await conn.fetchrow(db.in_schema(_STOPPED), job_id, tenant, cut.from_step)
            if stopped is None or not (stopped["has_ended"] or stopped["is_held"]):
                return None
            if cut.from_step is not None and stopped["cut"] is None:
                raise no_step(job_id, cut.from_step)
            sql = retry if stopped["has_ended"] else _FROM_HELD
            found = await conn.fetchrow(db.in_schema(sql), job_id, tenant)
            if found is None:
                return None
            # Nobody sees the job ready before all of this is committed.
            await conn.execute(db.in_schema(_CUT), stopped["run_id"], None if cut.is_fresh else stopped["cut"])
            if cut.is_fresh:
                await conn.execute(db.in_schema(_ANEW), job_id, uuid4())
            before = (
                None if cut.from_step is None else Before(stopped["branch"], stopped["number"], stopped["ended_at"])
            )
            cancelled.extend(await cancel_children(db, conn, job_id, keeps=not cut.is_fresh, before=before))
            await keep(db, conn, audit)
            return found

    found = await db.run(once)
    await tell_of_children(db, cancelled)
    return found
