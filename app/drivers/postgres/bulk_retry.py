"""The retry and the release of a bulk operation: a batch of tokens is ready again in one statement.

As `retry` and `release_held` take one, and waiting for no token. Keys are won in the order of their hashes, before a
finished row is deleted; of several jobs of a batch with one key the oldest takes it, and the others come again.
"""

from __future__ import annotations

from .buckets import CANCELLED, DEAD, NEW_RANK
from .bulk_acts import NONE_REFUSED, acting
from .retry import MINE

# A key that is only just being taken shows no holder yet; its job comes again.
_RETRY_PART = f"""
f as materialized (
  select f.job_id, f.claim_no, f.interrupts from outlast.finished f
  where f.job_id = any(array(select id from fit)) and f.state in ({DEAD}, {CANCELLED})
  order by f.job_id for update skip locked),
g as materialized (
  select f.*, e.queue, e.priority, e.limit_names, e.name_id, e.key_hash, e.fp from f join fit e on e.id = f.job_id),
own as materialized (
  select distinct on (key_hash) job_id, key_hash, fp from g where key_hash is not null order by key_hash, job_id),
k as (
  insert into outlast.live_key as k (hash, job_id, fp)
  select key_hash, job_id, coalesce(fp, 0) from own order by key_hash
  on conflict (hash) do update set job_id = excluded.job_id, fp = excluded.fp, ended = false,
    expires_at = case when k.job_id = excluded.job_id then k.expires_at end
  where {MINE}
  returning k.job_id),
won as materialized (select job_id from g where key_hash is null union all select job_id from k),
d as (
  delete from outlast.finished x where x.job_id = any(array(select job_id from won)) returning x.job_id),
r as (
  insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
  select e.queue, {NEW_RANK}, e.job_id, e.name_id, 0, e.claim_no, 0, e.interrupts
  from d join g e on e.job_id = d.job_id order by e.job_id),
o as (
  update outlast.job set run_at = null, deadline_at = null
  where id = any(array(select job_id from d)) and (run_at is not null or deadline_at is not null)),
x as (delete from outlast.expiry where job_id = any(array(select job_id from d))),
did as materialized (select job_id, null::text as detail from d),
refused as materialized (
  select g.job_id, 'JOB_DUPLICATE' as code, k.job_id::text as detail
  from g cross join lateral (
    select k.job_id from outlast.live_key k where k.hash = g.key_hash and k.job_id <> g.job_id
      and (not k.ended or k.expires_at > outlast.clock()) offset 0) k
  where g.job_id <> all(array(select job_id from won)))
"""  # noqa: S608  fragments of our own

_RELEASE_PART = f"""
h_rows as materialized (
  select t.job_id from outlast.held t where t.job_id = any(array(select id from fit)) for update skip locked),
h as (delete from outlast.held where job_id = any(array(select job_id from h_rows)) returning *),
r as (
  insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
  select h.queue, h.rank & -2, h.job_id, e.name_id, h.attempt, h.claim_no, h.crashes, h.interrupts
  from h join fit e on e.id = h.job_id order by h.job_id),
did as materialized (select job_id, null::text as detail from h),
{NONE_REFUSED}
"""  # noqa: S608  same

RETRY = acting(_RETRY_PART)
RELEASE = acting(_RELEASE_PART)
