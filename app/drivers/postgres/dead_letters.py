"""`dead_letters`: the newest dead letters in groups, with work that is bounded whatever the store holds.

Of what ended badly the newest `GROUPED` are looked at, dead or not. Each group says how many of it died in each of the
last 24 hours, and shows the message of its newest job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...domain.error_shape import READ_CHARS
from ...domain.snapshot import HOURS, DeadGroup
from .buckets import DEAD, DONE
from .reader import Reader
from .tenant_wall import behind

GROUPED = 20_000

# The hours are numbered from 1, the oldest; what died before them is in none. Ids begin with the time of the enqueue.
# Taken together before they are grouped: grouped as they come they would be sorted by all they are grouped by.
_DEAD = f"""
with dead as materialized (
  select f.job_id, j.name_id, coalesce(f.reason, '') as reason, a.error_type, a.error_code, f.finished_at,
    width_bucket(f.finished_at, h.began)::smallint as hour
  from (
    select array(
      select outlast.clock() - ago * interval '1 hour' from generate_series({HOURS}, 1, -1) ago) as began offset 0) h
  cross join (
    select job_id, state, reason, finished_at from outlast.finished where state <> {DONE}
    order by job_id desc limit $2) f
  cross join lateral (
    select j.name_id from outlast.job j where j.id = f.job_id and ($1::text is null or j.tenant = $1) offset 0) j
  left join lateral (
    select a.error_type, a.error_code from outlast.attempt a where a.job_id = f.job_id
    order by a.number desc limit 1) a on true
  where f.state = {DEAD})
select n.name, g.*, m.message from (
  select d.name_id, d.reason, d.error_type, d.error_code, count(*) as n, min(d.finished_at) as first_at,
    max(d.finished_at) as last_at, array_agg(d.hour) filter (where d.hour > 0) as hours,
    max(d.job_id::text collate "C")::uuid as newest
  from dead d group by 1, 2, 3, 4) g
left join lateral (select n.name from outlast.job_name n where n.id = g.name_id offset 0) n on true
left join lateral (
  select left(a.error_message, {READ_CHARS}) as message from outlast.attempt a where a.job_id = g.newest
  order by a.number desc limit 1) m on true"""  # noqa: S608  fragments of our own


async def dead_letters(db: Reader, *, tenant: str | None = None) -> tuple[DeadGroup, ...]:
    """Group the newest dead letters, most first, then by words; of a great many the oldest are left out."""
    rows = await behind(db, tenant, lambda conn: conn.fetch(db.in_schema(_DEAD), tenant, GROUPED))
    groups = [
        DeadGroup(
            name=row["name"] or "",
            reason=row["reason"],
            error_type=row["error_type"],
            error_code=row["error_code"],
            count=row["n"],
            first_at=row["first_at"],
            last_at=row["last_at"],
            per_hour=_per_hour(row["hours"] or ()),
            error_message=row["message"],
        )
        for row in rows
    ]
    return tuple(sorted(groups, key=_most_first))


def _per_hour(hours: Sequence[int]) -> tuple[int, ...]:
    counts = Counter(hours)
    return tuple(counts[hour] for hour in range(1, HOURS + 1))


def _most_first(group: DeadGroup) -> tuple[object, ...]:
    return (-group.count, group.name, group.reason, group.error_type or "", group.error_code or "")
