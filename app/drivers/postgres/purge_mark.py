"""Where the round over each kind of rows stands: a row a kind, moved in the commit of the step that moved it.

Fragments of SQL for the statements of steps. The row's lock is what makes of any number of workers one at a time: the
others pass over it and have nothing to do. Owns the rule of how long a kind rests. Used by the steps alone.
"""

from __future__ import annotations

from datetime import timedelta

from ...domain.retention import REST_FACTOR, Tidied
from .database import Database, Raw

# $1 is the kind, $2 whether its rest is not waited for, $3 the shortest rest.
MARK = """
m as materialized (
  select p.after, p.round_at from outlast.purge_mark p
  where p.kind = $1 and ($2::boolean or p.rests_until <= outlast.clock()) for update skip locked)"""

# Of a CTE `o` with a row when `m` has one: whether the round is over, else its last key; the lowest worker that a row
# which stays still names. The last step's own time counts, too: it may have walked over much that lies dead.
MOVE = f"""
moved as (
  update outlast.purge_mark p set after = case when not o.is_over then o.last end,
    began_at = case when not o.is_over then coalesce(p.began_at, outlast.clock()) end,
    round_at = case when o.is_over then coalesce(p.began_at, outlast.clock()) else p.round_at end,
    low = case when not o.is_over then least(p.low, o.low) end,
    lowest = case when o.is_over then coalesce(least(p.low, o.low), 2147483647) else p.lowest end,
    rests_until = case when o.is_over
      then outlast.clock() + case when $3::interval > interval '0' then greatest($3, {REST_FACTOR} * (
        outlast.clock() - coalesce(p.began_at, outlast.clock()) + clock_timestamp() - statement_timestamp()))
        else interval '0' end
      else p.rests_until end
  from o where p.kind = $1
  returning p.round_at)
select o.deleted, o.is_over, outlast.clock() - coalesce(v.round_at, p.round_at, p.made_at) as behind
from outlast.purge_mark p left join o on true left join moved v on true where p.kind = $1"""  # noqa: S608  a number of our own

# The insert alone would wait for whoever moves the mark.
MAKE = """
insert into outlast.purge_mark(kind)
select $1 where not exists (select from outlast.purge_mark where kind = $1) on conflict do nothing returning true"""


async def take_step(db: Database, conn: Raw, sql: str, kind: str, *binds: object) -> Tidied:
    """Run the statement of a step; of a kind that is new, its mark is made first."""
    row = await conn.fetchrow(sql, kind, *binds)
    if row is None:
        await conn.execute(db.in_schema(MAKE), kind)
        row = await conn.fetchrow(sql, kind, *binds)
    if row is None or row["deleted"] is None:
        return Tidied(0, is_over=True, behind=timedelta() if row is None else row["behind"], is_idle=True)
    return Tidied(row["deleted"], row["is_over"], row["behind"])
