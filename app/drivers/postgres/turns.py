"""Turns of fair queues: their weights, jobs that have to be lined up by tenant, and times that nobody needs any more.

What becomes ready in a fair queue goes into the gate by itself. What was ready before, and what comes back from an
attempt that had begun before, lies among the ready ones or has no tenant there: it is lined up by the verb that makes
the queue fair, and by a sweep of any worker. Where no queue is fair there is nothing to read but one small table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...domain.turns import MOST_WEIGHTS
from .database import Database, Raw
from .gate_decision import Move
from .tables_limits import LIMITED

_AT_ONCE = 1_000

# Of a row of `queue` called q, as JSON.
WEIGHTS = f"""(
    select json_object_agg(w.tenant, w.weight)::text from (
      select f.tenant, f.weight from outlast.turn f where f.queue = q.name and f.weight is not null
      order by f.tenant collate "C" limit {MOST_WEIGHTS}) w)"""  # noqa: S608  our own number

# A tenant that nobody has given a weight, and that has begun nothing for a day, begins where the queue is, as one that
# was never there: whoever began last is not among them unless all are.
_LONG_UNUSED = "f.weight is null and f.used_at < outlast.clock() - interval '1 day'"
# What a sweep would find.
MUST_LINE_UP = f"""coalesce((
  select true from outlast.queue q where q.fair and (
    (select true from outlast.ready r where r.queue = q.name limit 1)
    or (select true from outlast.gate g
        where g.parked is null and g.queue = q.name and g.tenant = '' limit 1)
    or (select true from outlast.turn f where f.queue = q.name and {_LONG_UNUSED} limit 1)) limit 1), false)"""  # noqa: S608  our own

# They keep their numbers, and so their order. Locked ones are in somebody's hands; they are met the next time.
LINE_UP = f"""
with q as materialized (select q.name from outlast.queue q where q.fair),
rdy as materialized (
  select x.ctid from q cross join lateral (
    select r.ctid from outlast.ready r where r.queue = q.name order by r.rank, r.seq limit $1::int
    for update skip locked) x
  limit $1::int),
d as (
  delete from outlast.ready r where r.ctid = any(array(select ctid from rdy))
  returning r.job_id, r.queue, r.rank, r.seq, r.name_id, r.attempt, r.claim_no, r.crashes, r.interrupts, r.since),
g as (
  insert into outlast.gate(
    job_id, queue, rank, seq, name_id, attempt, claim_no, crashes, interrupts, since, tenant)
  select d.job_id, d.queue, d.rank | {LIMITED}, d.seq, d.name_id, d.attempt, d.claim_no, d.crashes, d.interrupts,
    coalesce(d.since, j.created_at, outlast.clock()), coalesce(j.tenant, '')
  from d left join lateral (
    select j.created_at, j.tenant from outlast.job j where j.id = d.job_id offset 0) j on true),
gat as materialized (
  select x.ctid from q cross join lateral (
    select g.ctid from outlast.gate g where g.parked is null and g.queue = q.name and g.tenant = '' limit $1::int
    for update skip locked) x
  limit $1::int),
u as (
  update outlast.gate g set tenant = coalesce((select j.tenant from outlast.job j where j.id = g.job_id), '')
  where g.ctid = any(array(select ctid from gat)) returning 1)
select ((select count(*) from d) + (select count(*) from u))::int"""  # noqa: S608  same
FORGET = f"""
delete from outlast.turn where ctid = any(array(
  select f.ctid from outlast.turn f where {_LONG_UNUSED} limit $1::int for update skip locked))"""  # noqa: S608  same

_SET_WEIGHTS = """
insert into outlast.turn as f (queue, tenant, weight)
select $1, u.tenant, u.weight from unnest($2::text[], $3::smallint[]) u(tenant, weight) order by u.tenant
on conflict (queue, tenant) do update set weight = excluded.weight"""


# Two rows of one batch are locked in one order; each is locked for the length of this statement alone.
_BEGINS = "greatest(f.finish, excluded.finish - excluded.starts)"
_WEIGHT = "coalesce(f.weight, 1)"
MOVE = f"""
insert into outlast.turn as f (queue, tenant, starts, started, finish)
select u.queue, u.tenant, u.n, u.start + u.n - 1, u.start + u.n
from unnest($1::text[], $2::text[], $3::float8[], $4::int[]) u(queue, tenant, start, n)
order by u.queue, u.tenant
on conflict (queue, tenant) do update set starts = f.starts + excluded.starts, used_at = outlast.clock(),
  finish = {_BEGINS} + excluded.starts::float8 / {_WEIGHT},
  started = greatest(f.started, {_BEGINS} + (excluded.starts - 1)::float8 / {_WEIGHT})"""  # noqa: S608  our own


async def move(db: Database, moves: Sequence[Move]) -> None:
    """Move turns on by starts that are committed. Their times never go back."""
    if not moves:
        return
    columns = [list(column) for column in zip(*moves, strict=True)]
    await db.run(lambda conn: conn.execute(db.in_schema(MOVE), *columns))


async def set_weights(db: Database, conn: Raw, queue: str, weights: Mapping[str, int | None]) -> None:
    """Set the weights of the tenants that are named, as a part of what is done on a connection."""
    await conn.execute(db.in_schema(_SET_WEIGHTS), queue, list(weights), list(weights.values()))


async def line_up(db: Database, batch: int = _AT_ONCE) -> int:
    """Line up to `batch` jobs up by tenant, twice as many at most; gives their number. Forgets unused times."""
    found: int = await db.run(lambda conn: conn.fetchval(db.in_schema(LINE_UP), batch))
    if found < batch:
        await db.run(lambda conn: conn.execute(db.in_schema(FORGET), batch))
    return found


async def line_up_all(db: Database) -> None:
    """Line up what there is, batch by batch."""
    while await db.run(lambda conn: conn.fetchval(db.in_schema(LINE_UP), _AT_ONCE)) >= _AT_ONCE:
        pass
