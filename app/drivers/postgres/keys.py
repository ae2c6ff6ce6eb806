"""What happens to an idempotency key when its job ends: freed, or kept as ended while its window lasts.

A fragment of SQL for statements that have a CTE `ended(job_id, key_hash)` of jobs whose token they moved to `finished`.
The rows are locked in the order of their hashes, after the tokens: that is the lock order everywhere. A key that
another job has taken over meanwhile is left alone.
"""

from __future__ import annotations

END_KEYS = """
key_rows as materialized (
  select k.hash, (k.expires_at > outlast.clock()) is true as stays from outlast.live_key k
  where k.hash = any(array(select key_hash from ended where key_hash is not null))
    and k.job_id = any(array(select job_id from ended where key_hash is not null))
  order by k.hash for update),
keys_freed as (
  delete from outlast.live_key where hash = any(array(select hash from key_rows where not stays))),
keys_kept as (
  update outlast.live_key set ended = true where hash = any(array(select hash from key_rows where stays)))"""
