"""`due`: what there is to do for the sweeps, in one look that changes nothing and locks nothing.

Composed of the sweeps' own predicates, so that it sees what they would. Called by any worker in their place, most of
the time for nothing.
"""

from __future__ import annotations

from datetime import timedelta

from ...domain.queue import JUST_ENDED
from ...domain.snapshot import Due
from .bulk_make import MUST_WORK_OFF
from .database import Database, Raw, Row
from .describe import finished_among
from .expire import PASSED
from .limit_versions import MUST_CHOOSE
from .reap import LAPSED, ORPHANED
from .slots import LONG_UNUSED
from .turns import MUST_LINE_UP
from .versions import MUST_RELEASE
from .webhook_carry import UNCARRIED

_AFTER = f"q.paused_until > outlast.clock() - interval '{JUST_ENDED.total_seconds()} s'"

# Limits are read in their order: `exists` may be planned as a join of them all.
_DUE = f"""
select (select w.due_at from outlast.waiting w
    where w.due_at >= $1 order by w.due_at limit 1) - outlast.clock() as promote_in,
  (select true from outlast.expiry x where {PASSED} order by x.at limit 1) is not null as must_expire,
  exists (select from outlast.worker where {LAPSED})
    or exists (select from outlast.running r where {ORPHANED}) as must_reap,
  (select v.due_at from outlast.wait v where v.due_at >= $2 order by v.due_at limit 1) - outlast.clock() as wake_in,
  {MUST_RELEASE.strip()} as must_release,
  (select min(q.paused_until) from outlast.queue q where q.paused_until > outlast.clock()) - outlast.clock()
    as resume_in,
  exists (select from outlast.queue q where q.paused_until <= outlast.clock() and {_AFTER})
    as has_resumed,
  {MUST_WORK_OFF} as must_bulk,
  {UNCARRIED} as must_carry,
  exists (select from outlast.slot r where {ORPHANED})
    or (select true from outlast.limit_key k where {LONG_UNUSED} order by k.used_at limit 1) is not null
    or {MUST_CHOOSE} as must_free,
  exists (select from outlast.gate) or exists (select from outlast.queue q where q.fair) as is_gated,
  {MUST_LINE_UP} as must_line_up,
  (select greatest(k.open_at - outlast.clock(), interval '0') from outlast.limit_key k
    where k.open_at is not null order by k.open_at limit 1) as admit_in"""  # noqa: S608  fragments of our own


async def due(db: Database) -> Due:
    """Say when the next job and the next wait are due, and whether the sweeps would find anything to do."""

    async def look(conn: Raw) -> Row | None:
        return await conn.fetchrow(db.in_schema(_DUE), db.due_mark.begin(conn), db.wake_mark.begin(conn))

    row = await db.run(look)
    if row is None:
        raise AssertionError("a select without a table gives one row")
    called = db.called.now()
    has_ended = bool(called) and bool(await finished_among(db, called))
    return Due(
        promote_in=row["promote_in"],
        must_expire=row["must_expire"],
        must_reap=row["must_reap"],
        wake_in=min(row["wake_in"] or timedelta(), timedelta()) if has_ended else row["wake_in"],
        must_release=row["must_release"],
        resume_in=row["resume_in"],
        has_resumed=row["has_resumed"],
        must_bulk=row["must_bulk"],
        must_carry=row["must_carry"],
        must_free=row["must_free"],
        is_gated=row["is_gated"],
        must_line_up=row["must_line_up"],
        admit_in=row["admit_in"],
    )
