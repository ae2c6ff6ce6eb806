"""Everything that is over but ended jobs: one line a kind, one statement for all of them.

A kind is a table, a key in whose order it is walked, and the words that say a row is over. A step looks at a batch of
rows from the round's mark on and deletes those that are over and that nobody holds; it waits for nobody. To have a new
table kept in bounds, add a line to `AGED` and a kind to `Chore`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from ...domain.retention import EVENT_MARGIN, Chore, Retention, Tidied
from ..purging import MOST_COUNTED
from .buckets import DONE
from .database import Database, Raw
from .purge_mark import MAKE, MARK, MOVE, take_step

_LOWEST = {"int": "-1", "bigint": "-1", "timestamptz": "-infinity"}
# So many jobs are asked in one step whether they are done.
_ASKED = 5000


@dataclass(frozen=True, slots=True)
class Aged:
    """A table in the order of `key`; `over` says of a row `t` that nobody needs it, `$5` is how long such are kept."""

    table: str
    key: str
    key_type: str
    over: str


AGED = {
    Chore.KEYS: Aged("live_key", "expires_at", "timestamptz", "t.ended and t.expires_at <= outlast.clock() - $5"),
    Chore.SOURCES: Aged("source", "expires_at", "timestamptz", "t.expires_at < outlast.clock() - $5"),
    Chore.EVENTS: Aged("event", "seq", "bigint", "t.emitted_at < outlast.clock() - $5 and t.emitted_at < $6"),
    Chore.DRAINS: Aged("drain", "worker", "int", "t.ended_at < outlast.clock() - $5"),
    Chore.AUDIT: Aged("audit", "seq", "bigint", 't."at" < outlast.clock() - $5'),
    Chore.REQUESTS: Aged("request", "created_at", "timestamptz", "t.created_at < outlast.clock() - $5"),
    Chore.DELIVERIES: Aged("delivery", "ended_at", "timestamptz", "outlast.clock() - $5 > t.ended_at"),
    # Ended jobs that the last round over them left name none below its lowest; it did not look at those that were
    # younger than the shortest time any is kept, and `$5` is longer than that.
    Chore.WORKERS: Aged(
        "worker",
        "id",
        "int",
        """coalesce(t.closed_at, t.lost_at) < (
      select least(outlast.clock(), j.round_at) - $5 from outlast.purge_mark j where j.kind = 'jobs')
    and t.id < (select j.lowest from outlast.purge_mark j where j.kind = 'jobs')
    and t.id <> all(array(select r.worker from outlast.running r))
    and not exists (select from outlast.drain d where d.worker = t.id)""",
    ),
}

# Keys of one instant may be more than a batch: the round goes on at the instant of the last one, and is over when a
# step finds nothing to delete.
_TIDY = f"""
with {MARK.strip()},
seen as materialized (
  select t.ctid, t.<key> as key, (<over>) as is_old
  from outlast.<table> t
  where t.<key> >= (select coalesce(after::<type>, '<lowest>') from m)<only>
  order by t.<key> limit $4),
d as materialized (
  select t.ctid from outlast.<table> t
  where t.ctid = any(array(select ctid from seen where is_old)) and <over> for update skip locked),
gone as (delete from outlast.<table> t where t.ctid = any(array(select ctid from d)) returning true),
o as materialized (
  select (select count(*) from gone) as deleted,
    (select count(*) from seen) < $4 or (select count(*) from gone) = 0 as is_over,
    (select key::text from seen order by key desc limit 1) as last, null::int as low
  from m),{MOVE}"""  # noqa: S608  names of our own

_COUNT = f"""
select count(*) from (
  select from outlast.<table> t where <over><only> limit {MOST_COUNTED}) t"""  # noqa: S608  same

# Up to which id all jobs are done, for good: none of their runs will ask for an event. It does not look at those
# younger than events are kept: what was staged long before it was published has an older id than others of its time.
_DONE_TO = f"""
with {MARK.strip()},
seen as materialized (
  select j.id, f.state is not distinct from {DONE} as is_done
  from (
    select j.id from outlast.job j
    where j.id > (select coalesce(after::uuid, '00000000-0000-0000-0000-000000000000') from m)
      and j.id < (lpad(to_hex((extract(epoch from outlast.clock() - $3::interval) * 1000)::bigint), 12, '0')
        || repeat('0', 20))::uuid
    order by j.id limit $4) j
  left join lateral (select f.state from outlast.finished f where f.job_id = j.id offset 0) f on true),
stop as materialized (select id from seen where not is_done order by id limit 1),
o as materialized (
  select coalesce(
    (select id::text from seen where id < (select id from stop) or not exists (select from stop)
      order by id desc limit 1), m.after) as after,
    (select id from stop) as stop, (select count(*) from seen) < $4 as is_all
  from m),
moved as (
  update outlast.purge_mark p set after = o.after from o where p.kind = $1 and p.after is distinct from o.after)
select o.after, o.stop, o.is_all, outlast.clock() as now from o"""  # noqa: S608  a code of our own
_DONE_MARK = "events: jobs done"


async def tidy(db: Database, chore: Chore, retention: Retention, *, batch: int, rest: timedelta, now: bool) -> Tidied:
    """Take one step of the round over a kind of rows."""
    sql = db.in_schema(step_sql(chore))

    async def once(conn: Raw) -> Tidied:
        kept = await _kept(db, conn, chore, retention)
        return await take_step(db, conn, sql, chore.value, now, rest, batch, *kept)

    return await db.run(once)


async def count_over(db: Database, chore: Chore, retention: Retention) -> int:
    """Count the rows of a kind that are over."""
    sql = db.in_schema(_filled(_COUNT, chore, first=1))

    async def once(conn: Raw) -> int:
        count: int = await conn.fetchval(sql, *await _kept(db, conn, chore, retention))
        return count

    return await db.run(once)


async def _kept(db: Database, conn: Raw, chore: Chore, retention: Retention) -> tuple[object, ...]:
    kept = retention.kept(chore)
    return (kept, await _needed_from(db, conn, kept)) if chore is Chore.EVENTS else (kept,)


async def _needed_from(db: Database, conn: Raw, kept: timedelta) -> datetime:
    """Give the instant before which no job was enqueued that a run of may still ask for an event; steps towards it."""
    binds = (_DONE_MARK, True, kept, _ASKED)
    row = await conn.fetchrow(db.in_schema(_DONE_TO), *binds)
    if row is None and await conn.fetchval(db.in_schema(MAKE), _DONE_MARK):
        row = await conn.fetchrow(db.in_schema(_DONE_TO), *binds)
    if row is None:  # another process takes this step
        return datetime.fromtimestamp(0, UTC)
    if row["stop"] is not None:
        return _minted_at(row["stop"]) - EVENT_MARGIN
    now: datetime = row["now"]
    return now if row["is_all"] else _minted_at(UUID(row["after"])) - EVENT_MARGIN


def _minted_at(job_id: Any) -> datetime:  # noqa: ANN401  asyncpg's UUID or the standard library's
    return datetime.fromtimestamp((job_id.int >> 80) / 1000, UTC)


def step_sql(chore: Chore) -> str:
    """Give the step of a kind, written with `outlast.`."""
    return _filled(_TIDY, chore, first=5)


def _filled(template: str, chore: Chore, *, first: int) -> str:
    """Give a statement for a kind, its own binds from `first` on; what stands in it are names of our own."""
    aged = AGED[chore]
    over = aged.over.replace("$5", f"${first}::interval").replace("$6", f"${first + 1}::timestamptz")
    return (
        template.replace("<over>", over)
        .replace("<table>", aged.table)
        .replace("<key>", aged.key)
        .replace("<type>", aged.key_type)
        .replace("<lowest>", _LOWEST[aged.key_type])
        .replace("<only>", " and t.ended" if chore is Chore.KEYS else "")
    )
