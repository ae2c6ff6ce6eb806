"""`stats`, `queues`, `pause_queue`, `resume_queue`: how much is where, and which queues stand still.

Counts come from one statement, so a job that moves is counted once. Live jobs are counted all; of done, of dead and of
cancelled jobs the newest `COUNTED_ENDED` each are, so that a store full of history still answers.
"""

from __future__ import annotations

from collections import defaultdict

from ...domain.snapshot import QueueView, Stats
from ...domain.state import State
from ..protocol import Wake
from .buckets import CANCELLED, DEAD, DONE
from .database import Database, Row
from .notify import notify

COUNTED_ENDED = 10_000

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
ended as (
  (select job_id, state from outlast.finished where state = {DONE} order by job_id desc limit $1)
  union all
  (select job_id, state from outlast.finished where state = {DEAD} and state <> {DONE} order by job_id desc limit $1)
  union all
  (select job_id, state from outlast.finished where state = {CANCELLED} and state <> {DONE}
   order by job_id desc limit $1)),
counts as (
  select queue, 'ready' as state, sum(n)::bigint as n from ranks group by queue
  union all select queue, 'delayed', count(*) from outlast.waiting group by queue
  union all select queue, 'running', count(*) from outlast.running group by queue
  union all select queue, 'suspended', count(*) from outlast.suspended group by queue
  union all select queue, 'held', count(*) from outlast.held group by queue
  union all
  select j.queue, case f.state when {DONE} then 'done' when {DEAD} then 'dead' else 'cancelled' end, count(*)
  from ended f cross join lateral (select j.queue from outlast.job j where j.id = f.job_id offset 0) j
  group by j.queue, f.state)
select coalesce(c.queue, q.name) as queue, c.state, c.n, q.paused_at, q.paused_by, q.pause_reason,
  case when o.since is not null then greatest(extract(epoch from outlast.clock() - o.since)::float8, 0) end as oldest
from counts c full join outlast.queue q on q.name = c.queue left join oldest o on o.queue = c.queue"""  # noqa: S608

_PAUSE = """
insert into outlast.queue as q (name, paused_at, paused_by, pause_reason) values ($1, outlast.clock(), $2, $3)
on conflict (name) do update
set paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
where q.paused_at is null"""

_RESUME = "delete from outlast.queue where name = $1 and paused_at is not null returning name"


async def stats(db: Database) -> Stats:
    """Count jobs by state and queue, each in exactly one bucket."""
    counted = await queues(db)
    by_state = {state: sum(queue.depth[state] for queue in counted) for state in State}
    return Stats(by_state=by_state, queues=counted)


async def queues(db: Database) -> tuple[QueueView, ...]:
    """Give every queue that has jobs or a setting, by name."""
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(_COUNT), COUNTED_ENDED))
    by_queue: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_queue[row["queue"]].append(row)
    return tuple(_queue(name, by_queue[name]) for name in sorted(by_queue))


async def pause_queue(db: Database, queue: str, *, by: str, reason: str | None = None) -> None:
    """Stop claims from a queue; repeating it keeps who paused it first, and why."""
    await db.run(lambda conn: conn.execute(db.in_schema(_PAUSE), queue, by, reason))


async def resume_queue(db: Database, queue: str) -> None:
    """Let claims from a queue begin again; safe to repeat."""
    if await db.run(lambda conn: conn.fetchval(db.in_schema(_RESUME), queue)) is not None:
        await notify(db, Wake.READY)


def _queue(name: str, rows: list[Row]) -> QueueView:
    first = rows[0]
    return QueueView(
        name=name,
        depth=dict.fromkeys(State, 0) | {State(row["state"]): row["n"] for row in rows if row["state"] is not None},
        oldest_ready_seconds=first["oldest"],
        paused_at=first["paused_at"],
        paused_by=first["paused_by"],
        pause_reason=first["pause_reason"],
    )
