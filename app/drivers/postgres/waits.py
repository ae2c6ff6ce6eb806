"""`wake`, `wake_parents` and `sweep_waits`: waits end by their time, or with the child they wait for.

Each locks the wait rows first and looks in a new statement: a suspend that was under way has committed by then.
`wake_parents` is called by every verb that ends jobs, once it has committed; what a crash in between misses, the sweep
finds. Emitting is `events`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from ...domain.errors import OutlastError
from ...domain.job import JobId
from ..protocol import Wake
from ..runs import Swept
from .buckets import DONE
from .database import Database, Raw
from .describe import finished_among
from .notify import notify
from .resolve import CHILD, RESOLVE
from .rows import plain
from .run_locks import child_lock, looking, take

# Passed over are waits that a suspend holds: it has the time to lock them for, and the next look meets them.
DUE_WAITS = """
select w.job_id, w.name, w.due_at from outlast.wait w
where w.due_at >= $2 and w.due_at <= outlast.clock()
order by w.due_at limit $1 for update skip locked"""
WAKE = f"""
with over as materialized (
  select w.*, null::text as value, null::bigint as event_seq, false as is_kept
  from unnest($1::uuid[], $2::text[]) i(job_id, name)
  cross join lateral (
    select w.*, w.ctid from outlast.wait w where w.job_id = i.job_id and w.name = i.name offset 0) w),
{RESOLVE.strip()}
select (select count(*) from over) as ended, (select count(*) from woken) as woken,
  outlast.clock() as looked_to"""  # noqa: S608  fragments of our own

IS_CALLED = "select (select true from outlast.wait w where w.child_id = any($1::uuid[]) limit 1) is not null"
CALLERS = """
select w.job_id from outlast.wait w where w.child_id = any($1::uuid[]) order by (w.job_id, w.name) for update"""
WAKE_PARENTS = f"""
with over as materialized (
  select w.*, f.result as value, null::bigint as event_seq, f.state is distinct from {DONE} as is_kept
  from (select w.*, w.ctid from outlast.wait w where w.child_id = any($1::uuid[]) offset 0) w {CHILD}
  where (f.state is not null or c.id is null) and (w.awaited or f.state is distinct from {DONE})),
told as (update outlast.wait set awaited = false where ctid = any(array(select o.ctid from over o where o.is_kept))),
{RESOLVE.strip()}
select count(*) from woken"""  # noqa: S608  same

# A run that sleeps or waits for an event has no row here: of those nobody has to be told by anybody.
SWEEP = f"""
with s as materialized (
  select w.job_id, w.child_id from outlast.wait w
  where w.child_id > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000') and w.awaited
  order by w.child_id fetch first ($2::bigint) rows with ties)
select (select count(*) from s) as looked, (select child_id from s order by child_id desc limit 1) as last,
  array(
    select distinct w.child_id from s w
    cross join lateral (select from outlast.suspended d where d.job_id = w.job_id offset 0) d {CHILD}
    where f.state is not null or c.id is null) as children"""  # noqa: S608  same


async def wake(db: Database, batch: int = 1000) -> int:
    """End up to `batch` waits whose time has come; gives their number, less than `batch` when no more are due.

    And wake what waits for a job that was there before and has ended, as far as this process knows of it.
    """

    async def look(conn: Raw) -> tuple[int, int]:
        async with looking(conn):
            began = await conn.fetchval(db.in_schema("select outlast.clock()"))
            due = await conn.fetch(db.in_schema(DUE_WAITS), batch, db.wake_mark.begin(conn))
            if not due:
                db.wake_mark.learn(began)
                return 0, 0
            named = [row["job_id"] for row in due], [row["name"] for row in due]
            (done,) = await conn.fetch(db.in_schema(WAKE), *named)
        db.wake_mark.learn(began if len(due) < batch else due[-1]["due_at"])
        return done["ended"], done["woken"]

    woken_by_ends = await _look_at_called(db)
    ended, woken = await db.run(look)
    if woken:
        await notify(db, Wake.READY)
    return ended + woken_by_ends


async def _look_at_called(db: Database) -> int:
    """Wake runs of this process that wait for jobs which were there before; asks nothing when there are none."""
    called = db.called.now()
    ended = await finished_among(db, called) if called else frozenset()
    woken = await wake_parents(db, sorted(ended))
    db.called.drop(ended)
    return woken


async def wake_parents(db: Database, children: Sequence[UUID]) -> int:
    """End the waits for children that have ended, or were deleted; gives how many runs it woke. Repeating is safe."""
    if not children:
        return 0

    async def look(conn: Raw) -> int:
        # Taken and given back: a suspend that was under way has committed then, a later one sees the end by itself.
        await take(conn, (child_lock(db, child) for child in children))
        if not await conn.fetchval(db.in_schema(IS_CALLED), list(children)):
            return 0
        async with looking(conn):
            await conn.fetch(db.in_schema(CALLERS), list(children))
            woken: int = await conn.fetchval(db.in_schema(WAKE_PARENTS), list(children))
            return woken

    woken = await db.run(look)
    if woken:
        await notify(db, Wake.READY)
    return woken


async def tell_parents(db: Database, children: Sequence[UUID]) -> None:
    """Do as `wake_parents` after a verb that has committed: its answer stands, and what fails here a sweep repairs."""
    try:
        await wake_parents(db, children)
    except OutlastError:
        return


async def sweep_waits(db: Database, after: JobId | None = None, batch: int = 1000) -> Swept:
    """Look at one batch of calls of suspended jobs, by their children's ids, for children that have ended."""
    row = await db.run(lambda conn: conn.fetchrow(db.in_schema(SWEEP), after, batch))
    if row is None:
        raise AssertionError("a select without a table gives one row")
    woken = await wake_parents(db, row["children"])
    return Swept(woken, None if row["looked"] < batch else JobId(plain(row["last"])))
