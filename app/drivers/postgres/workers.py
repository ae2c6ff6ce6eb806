"""Workers as the store knows them: one row each, the only row on the hot path that is updated.

Owns registration, what a worker shows of itself, being asked to drain, closing in order, and the list. Leases are
renewed by `heartbeat` and judged lost by `reap`. Called by the worker role, by operators and by readers.
"""

from __future__ import annotations

from ...domain.audit import AuditEntry
from ...domain.drain import LAST_PHASE, DrainAsk, DrainShown
from ...domain.job import WorkerId
from ...domain.snapshot import NewWorker, WorkerView
from ..protocol import Wake
from .audit import audited
from .database import Database, Raw
from .notify import notify
from .reader import Reader
from .rows import worker_view

# A boot id that is there already and alive is this very registration, its reply lost.
_REGISTER = """
insert into outlast.worker as w(boot_id, host, pid, code_version, queues, concurrency, lease_ms, lease_until, names)
values ($1, $2, $3, $4, $5, $6, $7::int, outlast.clock() + $7::int * interval '1 ms', $8)
on conflict (boot_id) do update set lease_until = excluded.lease_until, renewed_at = outlast.clock()
  where w.lost_at is null and w.closed_at is null and w.lease_until > outlast.clock()
returning id
"""
# A worker that lost its lease starts anew in the same process: the row it had keeps its id and gives its boot id up.
_GIVE_UP_BOOT = "update outlast.worker set boot_id = gen_random_uuid() where boot_id = $1"

# The last phase stays: claims are judged by it, and the heartbeat may have shown it before a loop that hung.
_SHOW = f"""
update outlast.worker
set wakeup = $2, drain_phase = case drain_phase when '{LAST_PHASE}' then drain_phase else $3 end,
  drain_reason = $4, drain_deadline_at = outlast.clock() + $5::interval,
  drain_asked_at = coalesce(drain_asked_at, outlast.clock() - $6::interval)
where id = $1
"""  # noqa: S608  a word of our own
# The first to ask stands; a signal that came before has no name. The second statement sees what the first did not: who
# is not alive never is again.
_ASK = """
update outlast.worker
set drain_asked_at = case when drain_asked_by is null then outlast.clock() else drain_asked_at end,
  drain_asked_by = coalesce(drain_asked_by, $2)
where id = $1 and lost_at is null and closed_at is null and lease_until > outlast.clock() returning id
"""
_HAS_LEFT = f"""
select closed_at is not null and lost_at is null or drain_phase is not distinct from '{LAST_PHASE}'
from outlast.worker where id = $1
"""  # noqa: S608  a word of our own
_CLOSE = """
update outlast.worker set closed_at = outlast.clock() where id = $1 and closed_at is null and lost_at is null
"""
_WORKERS = """
select w.*, greatest(0, extract(epoch from outlast.clock() - w.renewed_at) * 1000)::bigint as heartbeat_age_ms,
  coalesce(r.running, 0) as running
from outlast.worker w
left join (select worker, count(*) as running from outlast.running group by worker) r on r.worker = w.id
where coalesce(w.closed_at, w.lost_at, outlast.clock()) > outlast.clock() - interval '1 hour'
order by w.id desc
"""


async def register_worker(db: Database, worker: NewWorker) -> WorkerId:
    """Give a new worker an id with a lease that starts now. Repeating a call whose reply was lost gives the same id."""
    binds = (
        *(worker.boot_id, worker.host, worker.pid, worker.code_version, list(worker.queues)),
        *(worker.concurrency, worker.lease_ms, None if worker.names is None else list(worker.names)),
    )

    async def once(conn: Raw) -> WorkerId:
        while (given := await conn.fetchval(db.in_schema(_REGISTER), *binds)) is None:
            await conn.execute(db.in_schema(_GIVE_UP_BOOT), worker.boot_id)
        return WorkerId(given)

    worker_id = await db.run(once)
    db.versions[worker_id] = worker.code_version
    return worker_id


async def show_worker(db: Database, worker_id: WorkerId, *, wakeup: str | None, drain: DrainShown | None) -> None:
    """Show how the worker learns of work and how far its drain is."""
    shown = (None,) * 4 if drain is None else (drain.phase, drain.reason, drain.left, drain.told)
    async with db.raw() as conn:
        await conn.execute(db.in_schema(_SHOW), worker_id, wakeup, *shown)


async def ask_drain(db: Database, worker_id: WorkerId, *, by: str, audit: AuditEntry | None = None) -> DrainAsk:
    """Ask a worker to drain, and wake the fleet so that it renews now. Safe to repeat."""

    async def ask(conn: Raw) -> object:
        return await conn.fetchval(db.in_schema(_ASK), worker_id, by)

    if await audited(db, ask, audit, lambda entry, asked: None if asked is None else entry) is not None:
        await notify(db, Wake.REVOKED)
        return DrainAsk.ASKED
    has_left = await db.run(lambda conn: conn.fetchval(db.in_schema(_HAS_LEFT), worker_id))
    if has_left is None:
        return DrainAsk.UNKNOWN
    return DrainAsk.LEFT if has_left else DrainAsk.LOST


async def close_worker(db: Database, worker_id: WorkerId) -> None:
    """Close a worker in order; its claims are returned uncounted by the next reap. One already lost stays lost."""
    async with db.raw() as conn:
        await conn.execute(db.in_schema(_CLOSE), worker_id)


async def workers(db: Reader) -> tuple[WorkerView, ...]:
    """Give the workers that are live or left in the last hour, newest first."""
    return await db.run(lambda conn: workers_on(db, conn))


async def workers_on(db: Reader, conn: Raw) -> tuple[WorkerView, ...]:
    """Give the same to a caller that has a connection, in its transaction if it has one."""
    return tuple(worker_view(row) for row in await conn.fetch(db.in_schema(_WORKERS)))
