"""`delete`: an operator deletes a job that has ended or is held, with every row that is about it alone.

Keys within their windows and sources stay, as after a purge: they promise that no second job comes of the same work.
A held job ends by this, so its key is freed, its children are cancelled, and whoever waits for it is told.
"""

from __future__ import annotations

from uuid import UUID

from ...domain.audit import AuditEntry
from ...domain.job import JobId
from ...domain.snapshot import JobView
from ...domain.state import State
from ..actions import refuse_delete, refuse_stale
from ..protocol import Wake
from .audit import keep
from .cancel import cancel_children, tell_of_children
from .database import Database, Raw
from .held_still import Still, on_still
from .keys import END_KEYS
from .notify import notify
from .waits import tell_parents

# The token is locked already; the keys come last, as everywhere.
DELETE_ONE = f"""
with f as (delete from outlast.finished where job_id = $1),
h as (delete from outlast.held where job_id = $1 returning job_id),
a as (delete from outlast.attempt where job_id = $1),
x as (delete from outlast.expiry where job_id = $1),
w as (delete from outlast.wait where job_id = $1),
l as (delete from outlast.run_line where job_id = $1),
p as (delete from outlast.progress where job_id = $1),
n as (delete from outlast.handed where job_id = $1),
j as (delete from outlast.job where id = $1 returning id, key_hash, coalesce(run_id, id) as run_id),
s as (delete from outlast.step where run_id = any(array(select run_id from j))),
ended as materialized (select h.job_id, j.key_hash from h join j on j.id = h.job_id),
{END_KEYS.strip()}
select count(*) from j"""  # noqa: S608  fragments of our own


async def delete(
    db: Database,
    job_id: JobId,
    *,
    versions: frozenset[str] | None = None,
    tenant: str | None = None,
    audit: AuditEntry | None = None,
) -> None:
    """Delete a job. A call whose reply was lost is answered `JOB_NOT_FOUND` when it is repeated.

    Raises:
        OutlastError: `JOB_NOT_FOUND`; `PRECONDITION_FAILED` in none of the versions; `JOB_STATE_CONFLICT` for a job
            that may still run.
    """
    cancelled: list[UUID] = []

    async def forget(conn: Raw, still: Still) -> JobView:
        cancelled.clear()
        refuse_stale(still.view, versions)
        refuse_delete(still.view)
        if still.view.state is State.HELD:
            cancelled.extend(await cancel_children(db, conn, job_id))
        await conn.execute(db.in_schema(DELETE_ONE), job_id)
        await keep(db, conn, None if audit is None else audit.of_deleted(still.view))
        return still.view

    # A run that waits for this job and was not told of its end yet is given the result while it is there.
    await tell_parents(db, [job_id])
    view = await on_still(db, job_id, tenant, forget)
    if view.state is State.HELD:
        await notify(db, Wake.FINISHED)
        await tell_parents(db, [job_id])
    await tell_of_children(db, cancelled)
