"""Whose turn a job of a fair queue waits for, and how many begin before it: a part of `explain`.

Reckoned from the heads of each tenant's line and its time, as an admission does; what is before it is counted up to a
bound. Of more tenants than one look meets the rest is left out.
"""

from __future__ import annotations

from typing import NamedTuple

from ...domain.job import JobId
from ...domain.reason import MOST_AHEAD
from ...domain.turns import DEFAULT_WEIGHT, TurnFacts, ahead_of
from .database import Database, Raw
from .gate_look import MOST_TENANTS

# The job's own tenant is met wherever it stands among them.
TURNS = f"""
with recursive o as materialized (
  select g.queue, g.tenant, g.rank, g.seq from outlast.gate g
  where g.job_id = $1 and g.parked is null and g.tenant > ''),
t as (
  select o.queue, 1 as n, (
    select g.tenant from outlast.gate g
    where g.parked is null and g.queue = o.queue and g.tenant > '' order by g.tenant limit 1) as tenant
  from o
  union all
  select t.queue, t.n + 1, (
    select g.tenant from outlast.gate g
    where g.parked is null and g.queue = t.queue and g.tenant > t.tenant order by g.tenant limit 1)
  from t where t.tenant is not null and t.n < {MOST_TENANTS}),
l as (
  select t.queue, t.tenant from t where t.tenant is not null union select o.queue, o.tenant from o)
select l.queue, l.tenant, l.tenant = o.tenant as is_own, o.rank, o.seq, greatest(f.finish, v.started, 0) as start,
  coalesce(f.weight, {DEFAULT_WEIGHT})::int as weight,
  case when l.tenant = o.tenant then (
    select count(*) from (
      select from outlast.gate g
      where g.parked is null and g.queue = o.queue and g.tenant = o.tenant and (g.rank, g.seq) < (o.rank, o.seq)
      limit $2::int) a)::int end as own_ahead
from l cross join o
left join lateral (
  select f.finish, f.weight from outlast.turn f where f.queue = l.queue and f.tenant = l.tenant offset 0) f on true
left join lateral (
  select v.started from outlast.turn v where v.queue = l.queue order by v.started desc limit 1) v on true"""  # noqa: S608  our own number
# Of each tenant the jobs that begin before a time, and the one that begins just then, if it was ready before this one.
AHEAD = """
select coalesce(sum(c.n + coalesce(c.is_before, 0)), 0)::bigint
from unnest($2::text[], $3::int[], $4::boolean[]) u(tenant, n, is_just_then)
cross join lateral (
  select (
      select count(*) from (
        select from outlast.gate g where g.parked is null and g.queue = $1 and g.tenant = u.tenant limit u.n) a) as n,
    (select ((g.rank, g.seq) < ($5::smallint, $6::bigint))::int from outlast.gate g
      where u.is_just_then and g.parked is null and g.queue = $1 and g.tenant = u.tenant
      order by g.rank, g.seq offset u.n limit 1) as is_before) c"""


class TurnAhead(NamedTuple):
    """Whose turn it is, and how many jobs begin before."""

    facts: TurnFacts
    ahead: int


async def turn_on(db: Database, conn: Raw, job_id: JobId) -> TurnAhead | None:
    """Give whose turn a job waits for, in the transaction's snapshot; None where it waits for none, or is parked."""
    rows = await conn.fetch(db.in_schema(TURNS), job_id, MOST_AHEAD)
    own = next((row for row in rows if row["is_own"]), None)
    if own is None:
        return None
    tag = own["start"] + own["own_ahead"] / own["weight"]
    others = [row for row in rows if not row["is_own"]]
    counts = [ahead_of(tag, start=row["start"], weight=row["weight"]) for row in others]
    before: int = await conn.fetchval(
        db.in_schema(AHEAD),
        own["queue"],
        [row["tenant"] for row in others],
        [min(count, MOST_AHEAD) for count, _ in counts],
        [is_just_then for _, is_just_then in counts],
        own["rank"],
        own["seq"],
    )
    facts = TurnFacts(tenant=own["tenant"], weight=own["weight"], tenants=len(rows), own_ahead=own["own_ahead"])
    return TurnAhead(facts, min(own["own_ahead"] + before, MOST_AHEAD))
