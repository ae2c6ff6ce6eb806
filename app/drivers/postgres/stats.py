"""`stats`, `queues`: how much is where, which queues stand still, and which are limited.

Counts come from one statement, so a job that moves is counted once. Live jobs are counted all; of done, of dead and of
cancelled jobs the newest `COUNTED_ENDED` each are, so that a store full of history still answers.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence

from ...domain.snapshot import OldestSnapshot, QueueView, Stats
from ...domain.state import State
from .buckets import CANCELLED, DEAD, DONE
from .database import Raw, Row
from .queues import PAUSED
from .reader import Reader
from .turns import WEIGHTS
from .vitals_server import HOLDERS

COUNTED_ENDED = 10_000


def _ended(state: State, fits: str) -> str:
    """Count the newest jobs in a state by queue; their envelopes are read page by page, not one after the other."""
    return f"""
  select j.queue, '{state}', count(*) from outlast.job j
  where j.id = any(array(select job_id from outlast.finished where {fits} order by job_id desc limit $1))
  group by j.queue"""  # noqa: S608  fragments of our own


# The first of a rank became ready before the rest. A fresh token has no `since`: it is as old as its envelope.
_COUNT = f"""
with ranks as materialized (
  select queue, rank, count(*) as n, min(seq) as first from outlast.ready group by queue, rank),
oldest as (
  select r.queue, min(coalesce(t.since, j.created_at)) as since
  from ranks r
  cross join lateral (
    select t.job_id, t.since from outlast.ready t
    where t.queue = r.queue and t.rank = r.rank and t.seq = r.first offset 0) t
  cross join lateral (select j.created_at from outlast.job j where j.id = t.job_id offset 0) j
  group by r.queue),
gated as materialized (select queue, count(*) as n, min(since) as since from outlast.gate group by queue),
waits as (
  select queue, min(since) as since from (
    select queue, since from oldest union all select queue, since from gated) o group by queue),
counts as (
  select queue, 'ready' as state, sum(n)::bigint as n from (
    select queue, n from ranks union all select queue, n from gated) r group by queue
  union all select queue, 'delayed', count(*) from outlast.waiting group by queue
  union all select queue, 'running', count(*) from outlast.running group by queue
  union all select queue, 'suspended', count(*) from outlast.suspended group by queue
  union all select queue, 'held', count(*) from outlast.held group by queue
  union all {_ended(State.DONE, f"state = {DONE}")}
  union all {_ended(State.DEAD, f"state = {DEAD} and state <> {DONE}")}
  union all {_ended(State.CANCELLED, f"state = {CANCELLED} and state <> {DONE}")})
select coalesce(c.queue, q.name) as queue, c.state, c.n, q.paused_at, q.paused_by, q.pause_reason, q.paused_until,
  q.concurrency, q.max_depth, q.fair, case when q.fair then {WEIGHTS} end as weights,
  case when o.since is not null then greatest(extract(epoch from outlast.clock() - o.since)::float8, 0) end as oldest
from counts c full join (
  select q.name, q.concurrency, q.max_depth, q.fair, p.* from outlast.queue q
  left join lateral (
    select q.paused_at, q.paused_by, q.pause_reason, q.paused_until where {PAUSED}) p on true
  where p.paused_at is not null or q.concurrency is not null or q.max_depth is not null or q.fair) q on q.name = c.queue
left join waits o on o.queue = c.queue"""  # noqa: S608


# Slots may be held where no job and no queue is left to be counted.
_COUNT_ALL = f"""
select c.*, s.n as slots from (select count(*) as n from outlast.slot) s left join ({_COUNT}) c on true"""  # noqa: S608

_OLDEST_SNAPSHOT = f"""
select coalesce(extract(epoch from max(h.age)), 0)::float8 as seconds, coalesce(max(h.xids), 0)::bigint as xids
from ({HOLDERS}) h"""  # noqa: S608  fragments of our own


async def stats(db: Reader) -> Stats:
    """Count jobs by state and queue, each in exactly one bucket, and the slots that are held; look at the horizon."""

    async def look(conn: Raw) -> tuple[list[Row], Row | None]:
        counted = await conn.fetch(db.in_schema(_COUNT_ALL), COUNTED_ENDED)
        return counted, await conn.fetchrow(_OLDEST_SNAPSHOT)

    rows, oldest = await db.run(look)
    counted = _queues([row for row in rows if row["queue"] is not None])
    by_state = {state: sum(queue.depth[state] for queue in counted) for state in State}
    return Stats(by_state=by_state, queues=counted, slots_held=rows[0]["slots"], oldest_snapshot=_snapshot(oldest))


def _snapshot(row: Row | None) -> OldestSnapshot | None:
    return None if row is None else OldestSnapshot(seconds=row["seconds"], xids=row["xids"])


async def queues(db: Reader) -> tuple[QueueView, ...]:
    """Give every queue that has jobs or a setting, by name."""
    return _queues(await db.run(lambda conn: conn.fetch(db.in_schema(_COUNT), COUNTED_ENDED)))


def _queues(rows: Sequence[Row]) -> tuple[QueueView, ...]:
    by_queue: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_queue[row["queue"]].append(row)
    return tuple(_queue(name, by_queue[name]) for name in sorted(by_queue))


def _queue(name: str, rows: list[Row]) -> QueueView:
    first = rows[0]
    return QueueView(
        name=name,
        depth=dict.fromkeys(State, 0) | {State(row["state"]): row["n"] for row in rows if row["state"] is not None},
        oldest_ready_seconds=first["oldest"],
        paused_at=first["paused_at"],
        paused_by=first["paused_by"],
        pause_reason=first["pause_reason"],
        paused_until=first["paused_until"],
        concurrency=first["concurrency"],
        max_depth=first["max_depth"],
        is_fair=first["fair"] is True,
        weights=json.loads(first["weights"] or "{}"),
    )
