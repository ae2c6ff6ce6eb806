"""`patch`: an operator changes fields of a job that waits, behind the lock of its token.

What stays where it is is updated in place; only a new time moves a token, from `ready` to `waiting` or back. Another
priority draws another number of the queue's order: a claim does not look below numbers it has done with.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from ...domain.audit import UNCHANGED, AuditEntry
from ...domain.edit import JobPatch
from ...domain.job import JobId
from ...domain.snapshot import JobView
from ...domain.state import State
from ..actions import refuse_edit, refuse_stale
from ..protocol import Wake
from .audit import keep
from .buckets import READY_CTID
from .database import Database, Raw
from .held_still import Still, on_still
from .notify import notify
from .tables_limits import LIMITED

_CARRIED = "job_id, name_id, attempt, claim_no, crashes, interrupts"
_RANK = f"coalesce($2::smallint * 2 + (t.rank & {LIMITED | 1}), t.rank)"
_READY = f"""
ctid = any(array(select x.ctid from outlast.job e cross join lateral ({READY_CTID}) x where e.id = $1))"""  # noqa: S608  same

# The lock on the row has given the transaction its id before the number is drawn. A fresh token is as old as its job.
_RERANK_READY = f"""
with g as (update outlast.gate t set rank = {_RANK}, seq = nextval('outlast.token_seq') where job_id = $1)
update outlast.ready t set rank = {_RANK}, seq = nextval('outlast.token_seq'), moved = true,
  since = coalesce(t.since, (select j.created_at from outlast.job j where j.id = $1))
where {_READY}"""  # noqa: S608  same
_RERANK = "update outlast.{table} t set rank = {rank} where job_id = $1".replace("{rank}", _RANK)
_RESCHEDULE = f"update outlast.waiting t set rank = {_RANK}, due_at = $3 where job_id = $1"  # noqa: S608  same

_TO_WAITING = f"""
with r as (delete from outlast.ready t where {_READY} returning queue, rank, {_CARRIED}),
g as (delete from outlast.gate where job_id = $1 returning queue, rank, {_CARRIED}),
t as (select * from r union all select * from g)
insert into outlast.waiting(queue, rank, due_at, {_CARRIED}, reason) select queue, {_RANK}, $3, {_CARRIED}, 0 from t"""  # noqa: S608  same
_TO_READY = f"""
with t as (delete from outlast.waiting where job_id = $1 returning *)
insert into outlast.ready(queue, rank, {_CARRIED}) select queue, {_RANK}, {_CARRIED} from t"""  # noqa: S608  same

_ENVELOPE = """
update outlast.job set priority = coalesce($2::smallint, priority), run_at = coalesce($3::timestamptz, run_at),
  tags = case when $4 then $5::text[] else tags end, max_attempts = coalesce($6::smallint, max_attempts)
where id = $1"""


class _Moved(NamedTuple):
    """The wake-up that a change of a token calls for, if it does."""

    wake: Wake | None


async def patch(
    db: Database,
    job_id: JobId,
    patch: JobPatch,
    *,
    versions: frozenset[str] | None = None,
    tenant: str | None = None,
    audit: AuditEntry | None = None,
) -> None:
    """Change fields of a job that waits. Repeating it finds nothing to change.

    Raises:
        OutlastError: `JOB_NOT_FOUND`; `PRECONDITION_FAILED` in none of the versions; `JOB_STATE_CONFLICT` for a job
            that cannot be changed so.
    """

    async def change(conn: Raw, still: Still) -> _Moved:
        refuse_stale(still.view, versions)
        refuse_edit(still.view, patch)
        before, after = patch.before(still.view), patch.after()
        moved = _Moved(None)
        if before != after:
            moved = await _move(db, conn, still, patch)
            has_tags, tags = patch.tags is not None, list(patch.tags or ()) or None
            fields = (patch.priority, patch.run_at, has_tags, tags, patch.max_attempts)
            await conn.execute(db.in_schema(_ENVELOPE), job_id, *fields)
        if audit is not None:
            entry = audit.came_to(audit.outcome if before != after else UNCHANGED, before=before, after=after)
            await keep(db, conn, entry)
        return moved

    moved = await on_still(db, job_id, tenant, change)
    if moved.wake is not None:
        await notify(db, moved.wake)


async def _move(db: Database, conn: Raw, still: Still, patch: JobPatch) -> _Moved:
    """Move the token, or change it where it is; before the envelope, by whose priority a fresh one is found."""
    view = still.view
    priority = patch.priority if patch.priority != view.priority else None
    if patch.run_at is not None and (view.state is State.DELAYED or patch.run_at > still.now):
        return await _reschedule(db, conn, still, priority, patch.run_at)
    if priority is None:
        return _Moved(None)
    if view.state is State.READY:
        await conn.execute(db.in_schema(_RERANK_READY), view.id, priority)
        return _Moved(Wake.READY)
    await conn.execute(db.in_schema(_RERANK.replace("{table}", _TABLES[view.state])), view.id, priority)
    return _Moved(None)


async def _reschedule(db: Database, conn: Raw, still: Still, priority: int | None, run_at: datetime) -> _Moved:
    """Give a delayed or ready job another time."""
    view: JobView = still.view
    if run_at <= still.now:
        await conn.execute(db.in_schema(_TO_READY), view.id, priority)
        return _Moved(Wake.READY)
    sql = _TO_WAITING if view.state is State.READY else _RESCHEDULE
    await conn.execute(db.in_schema(sql), view.id, priority, run_at)
    return _Moved(Wake.DELAYED)


_TABLES = {State.DELAYED: "waiting", State.SUSPENDED: "suspended", State.HELD: "held"}
