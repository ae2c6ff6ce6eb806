"""Held slots, and what stands between a job and its limits: read only, each in one snapshot."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from ...domain.job import JobId, LimitKey, WorkerId
from ...domain.limit import (
    HOLDERS_SHOWN,
    Bucket,
    GateReason,
    JobLimits,
    LimitFacts,
    LimitRule,
    SlotQuery,
    SlotView,
    limit_hash,
)
from .database import Database, Raw, Row
from .reader import Reader
from .rows import plain
from .tenant_wall import behind

# Those ahead are counted up to here.
MOST_AHEAD = 10_000

_SLOT = """
select s.hash, s.job_id, s.seq, s.claim_no, s.worker, s.taken_at, k.name, k.limit, k.key,
  coalesce(j.tenant, '') as tenant,
  (select true from outlast.running r
    where r.job_id = s.job_id and r.seq = s.seq and r.claim_no = s.claim_no and r.worker = s.worker) is true as is_open
from outlast.slot s
cross join lateral (
  select k.name, k.limit, k.key from outlast.limit_key k where k.hash = s.hash offset 0) k
left join lateral (select j.tenant from outlast.job j where j.id = s.job_id offset 0) j on true"""
_SLOTS = f"""
{_SLOT}
where ($1::text is null or k.name = $1) and ($2::text is null or j.tenant = $2)
  and ($3::uuid is null or s.job_id > $3)
order by s.job_id fetch first ($4::bigint) rows with ties"""
SLOTS_OF_JOB = f"{_SLOT}\nwhere s.job_id = $1 order by s.taken_at, k.limit"

_LIMITED = """
select j.limit_names, j.limit_keys, j.name_id, n.name from outlast.job j join outlast.job_name n on n.id = j.name_id
where j.id = $1 and ($2::text is null or j.tenant = $2)"""
# How a key stands is told whole, also to a caller of one tenant, who sees no other's slots.
_FACTS = """
select outlast.clock() as at, g.why, g.job_id is not null as is_gated, u.ord, r.per, k.tokens, k.filled_at, k.held,
  case when r.declared is not null then coalesce(r.override, r.declared) end as n,
  array(
    select s.job_id from outlast.slot s
    where s.hash = u.hash and ($9::text is null
      or (select true from outlast.job j where j.id = s.job_id and j.tenant = $9))
    order by s.taken_at, s.job_id limit $7) as holders,
  case when g.job_id is not null then (
    select count(*) from (
      select from outlast.gate o cross join lateral (
        select from outlast.job j where j.id = o.job_id and j.name_id = $6
          and exists (
            select from unnest(j.limit_names, j.limit_keys) l(name, key) where l.name = u.name and l.key = u.key)
        offset 0) j
      where o.queue = g.queue and (o.rank, o.seq) < (g.rank, g.seq) limit $8) a) end as ahead
from (select 1) one left join outlast.gate g on g.job_id = $1
left join unnest($2::uuid[], $3::text[], $4::text[]) with ordinality u(hash, name, key, ord) on true
left join lateral outlast.limit_standing(u.hash) k on true
left join lateral (
  select r.* from outlast.limit_rule r where r.name = $5 and r.limit = u.name offset 0) r on true
order by u.ord"""


async def slots(db: Reader, query: SlotQuery) -> tuple[SlotView, ...]:
    """Give held slots, by their jobs' ids."""
    where = (query.name, query.tenant, query.after, query.limit)
    rows = await behind(db, query.tenant, lambda conn: conn.fetch(db.in_schema(_SLOTS), *where))
    return tuple(sorted(map(slot_view, rows), key=lambda slot: (slot.job_id, slot.taken_at, slot.limit)))


async def limits_of(db: Database, job_id: JobId, *, tenant: str | None = None) -> JobLimits | None:
    """Give what a job's limits are and how they stand. Which they are never changes; the rest is one statement."""
    return await behind(db, tenant, lambda conn: limits_on(db, conn, job_id, tenant=tenant))


async def limits_on(db: Database, conn: Raw, job_id: JobId, *, tenant: str | None = None) -> JobLimits | None:
    """Give the same on a connection, as a part of what is done there; a tenant is told of its own holders alone."""
    job = await conn.fetchrow(db.in_schema(_LIMITED), job_id, tenant)
    if job is None:
        return None
    limits = [LimitKey(*limit) for limit in zip(job["limit_names"] or (), job["limit_keys"] or (), strict=True)]
    hashes = [limit_hash(job["name"], limit) for limit in limits]
    names, keys = [limit.limit for limit in limits], [limit.key for limit in limits]
    asked: tuple[Any, ...] = (job_id, hashes, names, keys, job["name"], job["name_id"], HOLDERS_SHOWN, MOST_AHEAD)
    asked += (tenant,)
    rows = await conn.fetch(db.in_schema(_FACTS), *asked)
    first = rows[0]
    return JobLimits(
        is_gated=first["is_gated"],
        waits_for=None if first["why"] is None else GateReason(first["why"]),
        limits=tuple(_facts(limits[row["ord"] - 1], row) for row in rows if row["ord"] is not None),
    )


def slot_view(row: Row) -> SlotView:
    """Give a row of a look at slots as what is shown."""
    return SlotView(
        name=row["name"],
        limit=row["limit"],
        key=row["key"],
        job_id=JobId(plain(row["job_id"])),
        claim_no=row["claim_no"],
        worker_id=WorkerId(row["worker"]),
        taken_at=row["taken_at"],
        is_open=row["is_open"],
        tenant=row["tenant"],
    )


def _facts(limit: LimitKey, row: Row) -> LimitFacts:
    holders: list[UUID] = row["holders"]
    return LimitFacts(
        limit=limit.limit,
        key=limit.key,
        n=row["n"],
        per=None if row["n"] is None else row["per"],
        held=row["held"],
        holders=tuple(JobId(plain(holder)) for holder in holders),
        next_at=_next_at(limit, row),
        ahead=row["ahead"],
    )


def _next_at(limit: LimitKey, row: Row) -> datetime | None:
    """Give when a rate lets one start; None where that is no question of time, or now."""
    if row["n"] is None or row["per"] is None or row["tokens"] is None:
        return None
    rule = LimitRule(limit=limit.limit, n=row["n"], per=row["per"])
    bucket = Bucket(row["tokens"], row["filled_at"]).filled(rule, row["at"])
    return None if bucket.has_one else bucket.next_at(rule)
