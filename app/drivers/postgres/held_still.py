"""A job held still: its token is locked where it is, and the job is read again behind that lock.

What the caller of an edit has seen can then be compared with what is, and nothing can come in between before the
commit. A running token is not locked: whoever asks refuses to touch it. Used by `patch` and `delete`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import NamedTuple, TypeVar

from ...domain.job import JobId
from ...domain.snapshot import JobView
from ...domain.state import State
from .absent import not_found
from .buckets import READY_CTID
from .cancel import no_token
from .database import Database, Raw
from .describe import describe_on
from .run_locks import looking

T = TypeVar("T")

_LOOKS = 100

# The token is in one of these at most; who waited for somebody finds it gone from there, and looks again.
_LOCK = f"""
with e as materialized (
  select j.id, j.seq, j.queue, j.priority from outlast.job j
  where j.id = $1 and ($2::text is null or j.tenant = $2)),
sus as materialized (select job_id from outlast.suspended where job_id = (select id from e) for update),
rdy as materialized (
  select job_id from outlast.ready
  where ctid = any(array(select x.ctid from e cross join lateral ({READY_CTID}) x)) for update),
gat as materialized (select job_id from outlast.gate where job_id = (select id from e) for update),
wai as materialized (select job_id from outlast.waiting where job_id = (select id from e) for update),
hld as materialized (select job_id from outlast.held where job_id = (select id from e) for update),
fin as materialized (select job_id from outlast.finished where job_id = (select id from e) for update)
select outlast.clock() as now, exists (select from sus) or exists (select from rdy) or exists (select from gat)
    or exists (select from wai) or exists (select from hld) or exists (select from fin) as is_locked
from e"""  # noqa: S608  fragments of our own


class Still(NamedTuple):
    """A job whose token is locked, unless it runs, and the statement's instant."""

    view: JobView
    now: datetime


async def on_still(db: Database, job_id: JobId, tenant: str | None, verb: Callable[[Raw, Still], Awaitable[T]]) -> T:
    """Run a verb on a job that is held still, in one transaction; what it raises rolls that back.

    Raises:
        JobNotFound: no such job, or another tenant's.
        Internal: its token never stood still.
    """

    async def once(conn: Raw) -> list[T]:
        async with looking(conn):
            found = await conn.fetchrow(db.in_schema(_LOCK), job_id, tenant)
            view = None if found is None else await describe_on(db, conn, job_id)
            if found is None or view is None:
                raise not_found(job_id)
            if found["is_locked"] or view.state is State.RUNNING:
                return [await verb(conn, Still(view, found["now"]))]
        return []

    for _ in range(_LOOKS):
        done = await db.run(once)
        if done:
            return done[0]
    raise no_token(job_id)
