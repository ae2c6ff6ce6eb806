"""Rows of the outbox as the relay's verbs take them and give them back: the SQL of a look, and rows as values.

Used by `outbox_publish` and `outbox_claim`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ...domain.job import JobId, LimitKey, NewJob
from ...domain.outbox import (
    DEFERRAL_PART,
    LONGEST_DEFERRAL,
    SHORTEST_DEFERRAL,
    OutboxId,
    Refusal,
    RelayId,
    StagedRow,
)
from .database import Database, Raw, Row
from .rows import plain

# What one pass may hold of payloads, which are read on the loop: a look takes fewer rows when they are large, one at
# least.
MAX_BYTES = 2 * 1024 * 1024

_STALE = "claims > 0 and staged_at < outlast.clock() - interval '90 days'"

# By state and time of staging, passing over what other relays have. `taken` counts what was locked, before the cut.
LOOK = f"""
t as materialized (
  select o.*, {_STALE} as stale from outlast.outbox o where state = 0 and staged_at >= $1
  order by staged_at limit $2 for update skip locked),
w as materialized (
  select * from (
    select t.*, count(*) over () as taken,
      sum(octet_length(payload)) over (order by staged_at, id rows unbounded preceding)
        - octet_length(payload) as before
    from t) c where before < {MAX_BYTES})"""  # noqa: S608  fragments of our own

_QUARANTINE = """
update outlast.outbox o set state = 2, claimed_by = null, lease_until = null, refused_at = outlast.clock(),
  refused_code = r.code, refused_why = r.why
from unnest($1::uuid[], $2::text[], $3::text[]) r(id, code, why)
where o.id = r.id and o.state < 2 and o.claimed_by is not distinct from $4"""

# The claimant of rows that rest, which no relay is; their lease ends with their rest.
RESTS = "'00000000-0000-0000-0000-000000000000'::uuid"
# Of a relay's own claims one is taken back: nothing was published by it.
_DEFER = f"""
update outlast.outbox o
set state = 1, claimed_by = {RESTS}, claims = claims - case when claimed_by is null then 0 else 1 end,
  lease_until = outlast.clock() + least(greatest((outlast.clock() - staged_at) / {DEFERRAL_PART}, $3), $4)
where o.id = any($1::uuid[]) and o.state < 2 and o.claimed_by is not distinct from $2"""  # noqa: S608  a number of ours


def staged_row(row: Row) -> StagedRow:
    """Give a row as the job it is to become; its id is the job's source."""
    row_id = JobId(plain(row["id"]))
    timeout_ms, parent_id, tags = row["timeout_ms"], row["parent_id"], row["tags"]
    job = NewJob(
        id=row_id,
        name=row["name"],
        payload=row["payload"],
        queue=row["queue"],
        priority=row["priority"],
        tenant=row["tenant"],
        max_attempts=row["max_attempts"],
        max_crashes=row["max_crashes"],
        key=row["key"],
        fingerprint=row["fp"],
        dedupe_for=row["dedupe_for"],
        run_at=row["run_at"],
        max_queue_time=row["max_queue_time"],
        deadline=row["deadline"],
        timeout=None if timeout_ms is None else timedelta(milliseconds=timeout_ms),
        source_id=row_id,
        staged_at=row["staged_at"],
        parent_id=None if parent_id is None else JobId(plain(parent_id)),
        enqueued_by=row["enqueued_by"],
        traceparent=row["traceparent"],
        tags=() if tags is None else tuple(tags),
        meta=row["meta"],
        callback=row.get("callback"),
        limits=tuple(map(LimitKey, row.get("limit_names") or (), row.get("limit_keys") or ())),
    )
    return StagedRow(job=job, staged_at=row["staged_at"], is_stale=row["stale"])


async def put_aside(db: Database, conn: Raw, refusals: Sequence[Refusal], relay_id: RelayId | None) -> int:
    """Quarantine rows that this relay has claimed, or that nobody has."""
    ids: list[OutboxId] = [refusal.id for refusal in refusals]
    codes, words = [refusal.code for refusal in refusals], [refusal.message[:2000] for refusal in refusals]
    tag = await conn.execute(db.in_schema(_QUARANTINE), ids, codes, words, relay_id)
    return count_of(tag)


async def rest(db: Database, conn: Raw, ids: Sequence[OutboxId], relay_id: RelayId | None) -> int:
    """Let rows rest that this relay has claimed, or that nobody has."""
    return count_of(await conn.execute(db.in_schema(_DEFER), list(ids), relay_id, SHORTEST_DEFERRAL, LONGEST_DEFERRAL))


def count_of(tag: str) -> int:
    """Give the number of rows of a command tag such as `DELETE 3`."""
    return int(tag.rpartition(" ")[2])
