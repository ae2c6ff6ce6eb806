"""The look into the gate: who comes next of the queues that a worker may take from, in the order they are let in.

Two kinds of lines wait there. Jobs without a tenant stand in their queue's order. Those of a fair queue stand behind
one another by tenant, and of each tenant the heads are met, as many as its share of the look; no line is read past
that, so nothing grows with what waits. Nothing is locked: who decides about a job has its keys, and the locks of the
limited queues. Used by `gate`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...domain.job import LimitKey
from ...domain.limit import limit_hash
from ...domain.turns import DEFAULT_WEIGHT, Lined, Placed, in_turns
from ..protocol import ClaimRequest
from .claim import MAY_CLAIM
from .claimable import PLACES, fits
from .database import Database, Row
from .gate_decision import Candidate
from .queues import PAUSED

# So many tenants of a queue are met in one look; where more wait, the next look goes on behind them.
MOST_TENANTS = 200

_FITS = f"""
r.queue = {{queue}} and r.tenant = {{tenant}} and {fits("$4::int[]", "$6::boolean")}
  order by r.rank, r.seq limit {{most}}"""
_PLAIN = _FITS.strip().format(queue="q.queue", tenant="''", most="$5::int")
_OF_TENANT = _FITS.strip().format(queue="w.queue", tenant="w.tenant", most="w.most")
_JOB = "r.job_id, r.queue, r.rank, r.seq, r.name_id"
_NOBODYS = "null::uuid as line, '' as tenant, null::float8 as start, null::int as weight, null::int as most"

LOOK = f"""
with recursive q as materialized (
  select s.queue, s.after, l.places is not null as is_limited
  from unnest($2::text[], $3::int[], $7::text[]) s(queue, room, after)
  left join lateral (
    select {PAUSED} as is_paused, {PLACES} as places
    from outlast.queue q where q.name = s.queue offset 0) l on true
  where s.room > 0 and {MAY_CLAIM.strip()} and l.is_paused is not true and (l.places > 0) is not false),
k as materialized (select k.hash from outlast.limit_key k where k.open_at <= outlast.clock()),
t as (
  select q.queue, q.is_limited, 1 as n, (
    select g.tenant from outlast.gate g
    where g.parked is null and g.queue = q.queue and g.tenant > q.after order by g.tenant limit 1) as tenant
  from q
  union all
  select t.queue, t.is_limited, t.n + 1, (
    select g.tenant from outlast.gate g
    where g.parked is null and g.queue = t.queue and g.tenant > t.tenant order by g.tenant limit 1)
  from t where t.tenant is not null and t.n < {MOST_TENANTS}),
p as (
  select k.hash, q.queue, q.is_limited, 1 as n, (
    select g.tenant from outlast.gate g
    where g.parked = k.hash and g.queue = q.queue and g.tenant > '' order by g.tenant limit 1) as tenant
  from k cross join q
  union all
  select p.hash, p.queue, p.is_limited, p.n + 1, (
    select g.tenant from outlast.gate g
    where g.parked = p.hash and g.queue = p.queue and g.tenant > p.tenant order by g.tenant limit 1)
  from p where p.tenant is not null and p.n < {MOST_TENANTS}),
w as materialized (
  select l.line, l.queue, l.tenant, l.is_limited, greatest(f.finish, v.started, 0) as start, f.weight::int as weight,
    ceil($5::int * coalesce(f.weight, {DEFAULT_WEIGHT})::float8
      / sum(coalesce(f.weight, {DEFAULT_WEIGHT})) over (partition by l.line, l.queue))::int as most
  from (
    select null::uuid as line, t.queue, t.tenant, t.is_limited from t
    union all select p.hash, p.queue, p.tenant, p.is_limited from p) l
  left join lateral (
    select f.finish, f.weight from outlast.turn f where f.queue = l.queue and f.tenant = l.tenant offset 0) f on true
  left join lateral (
    select v.started from outlast.turn v where v.queue = l.queue order by v.started desc limit 1) v on true
  where l.tenant is not null),
c as materialized (
  select x.* from q cross join lateral (
    select {_JOB}, q.is_limited, {_NOBODYS} from outlast.gate r
    where r.parked is null and {_PLAIN}) x
  union all
  select x.* from k cross join q cross join lateral (
    select {_JOB}, q.is_limited, {_NOBODYS} from outlast.gate r
    where r.parked = k.hash and {_PLAIN}) x),
d as materialized (
  (select c.* from c order by c.rank, c.seq limit $5::int)
  union all
  select x.* from w cross join lateral (
    select {_JOB}, w.is_limited, w.line, w.tenant, w.start, w.weight, w.most from outlast.gate r
    where r.parked is null and {_OF_TENANT}) x
  where w.line is null
  union all
  select x.* from w cross join lateral (
    select {_JOB}, w.is_limited, w.line, w.tenant, w.start, w.weight, w.most from outlast.gate r
    where r.parked = w.line and {_OF_TENANT}) x
  where w.line is not null)
select d.*, j.limit_names, j.limit_keys
from d cross join lateral (
  select j.limit_names, j.limit_keys from outlast.job j where j.id = d.job_id offset 0) j
union all
select null, t.queue, null, null, null, null, null, t.tenant, null, null, null, null, null
from t where t.n = {MOST_TENANTS} and t.tenant is not null"""  # noqa: S608  fragments of our own


class Look(NamedTuple):
    """What a look has found: who comes next, in order, and whether more may wait behind them."""

    found: list[Candidate]
    is_more: bool


async def look(
    db: Database, request: ClaimRequest, rooms: Mapping[str, int], names: Mapping[int, str], batch: int
) -> Look:
    """Look once; `names` are the worker's, by their numbers. About `batch` jobs at most are found."""
    after = [db.turns_after.pop(queue, "") for queue in rooms]
    asked = (request.worker_id, list(rooms), list(rooms.values()), list(names), batch, request.alone_ok, after)
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(LOOK), *asked))
    db.turns_after.update({row["queue"]: row["tenant"] for row in rows if row["job_id"] is None})
    jobs = [row for row in rows if row["job_id"] is not None]
    of_lines = Counter((row["queue"], row["tenant"], row["line"]) for row in jobs if row["tenant"])
    most = {(row["queue"], row["tenant"], row["line"]): row["most"] for row in jobs}
    is_cut = any(count >= most[line] for line, count in of_lines.items())
    is_wrapped = any(after) or any(row["job_id"] is None for row in rows)
    found = [_candidate(row, names) for row in _in_order(jobs)]
    return Look(found[:batch], is_cut or is_wrapped or len(found) >= batch)


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """Give jobs by rank and age, those of fair queues in the places of their turns."""
    lined: defaultdict[str, list[Lined[Row]]] = defaultdict(list)
    placed = [Placed((row["rank"], row["seq"]), row) for row in rows if not row["tenant"]]
    for row in rows:
        if row["tenant"]:
            weight = row["weight"] or DEFAULT_WEIGHT
            lined[row["queue"]].append(Lined((row["rank"], row["seq"]), row["tenant"], row["start"], weight, row))
    for line in lined.values():
        placed += in_turns(line)
    return [one.job for one in sorted(placed, key=lambda one: one.place)]


def _candidate(row: Row, names: Mapping[int, str]) -> Candidate:
    name = names[row["name_id"]]
    limits = [LimitKey(*limit) for limit in zip(row["limit_names"] or (), row["limit_keys"] or (), strict=True)]
    keys = {limit_hash(name, limit): limit for limit in limits}
    return Candidate(row["job_id"], row["queue"], name, keys, row["is_limited"], row["tenant"], row["start"] or 0.0)
