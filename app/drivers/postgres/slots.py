"""Slots are given back: by the worker whose body ended, by a sweep in a gone worker's place, by an operator.

Each locks the keys first, in the order of their hashes, and only then, in a new statement, takes the slots away and
opens the keys that somebody is parked at: a job that was parked meanwhile is seen. Never a part of a settle.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from ...domain.audit import AuditEntry
from ...domain.errors import JobStateConflict, NotFound, SlotLost
from ...domain.job import ClaimToken, JobId, WorkerId
from ...domain.limit import KEY_KEPT, SlotView
from ..protocol import Wake
from .absent import not_found
from .audit import keep
from .buckets import TOKEN
from .database import Database, Raw, Row
from .notify import notify
from .reap import ORPHANED
from .run_locks import looking
from .slots_view import SLOTS_OF_JOB, slot_view
from .tenant_wall import admit

_FIND = "select s.hash, s.job_id, s.seq from outlast.slot s where {which}"
_NAMED = """
select s.hash, s.job_id, s.seq
from unnest($1::uuid[], $2::bigint[], $3::int[], $4::int[]) t(job_id, seq, claim_no, worker)
cross join lateral (
  select s.hash, s.job_id, s.seq from outlast.slot s
  where s.job_id = t.job_id and s.seq = t.seq and s.claim_no = t.claim_no and s.worker = t.worker offset 0) s"""
_NOT_HELD = _FIND.replace("{which}", "s.worker = $1 and not (s.seq = any($2::bigint[])) and s.taken_at < $3")
_ORPHANS = _FIND.replace("{which}", f"{ORPHANED.replace('r.worker', 's.worker')} limit $1")

LOCK_KEYS = "select k.hash from outlast.limit_key k where k.hash = any($1::uuid[]) order by k.hash for update"
GIVE_BACK = """
with d as (
  delete from outlast.slot s where s.ctid = any(array(
    select x.ctid from unnest($1::uuid[], $2::uuid[], $3::bigint[]) u(hash, job_id, seq)
    cross join lateral (
      select s.ctid from outlast.slot s where s.hash = u.hash and s.job_id = u.job_id and s.seq = u.seq offset 0) x))
  returning s.hash),
k as (
  update outlast.limit_key k set open_at = outlast.clock(), used_at = outlast.clock()
  where k.hash = any(array(select hash from d))
    and (select true from outlast.gate g where g.parked = k.hash limit 1) is true
  returning k.hash)
select (select count(*) from d) as freed, (select count(*) from k) as opened"""

# Keys that nobody has used for a while are looked at: those in use count as used now, and are not met again soon. A
# bucket that nobody has taken from may still not be full: it stays until it would be. Whoever uses a key has it locked,
# and writes to it: the row that is locked here is not of the past.
LONG_UNUSED = f"k.used_at < outlast.clock() - interval '{KEY_KEPT.total_seconds()} s'"
FORGET_KEYS = f"""
with o as materialized (
  select k.hash,
    coalesce(k.tokens is not null and k.filled_at + (
      select r.per from outlast.limit_rule r where r.name = k.name and r.limit = k.limit) > outlast.clock(), false)
    or (select true from outlast.slot s where s.hash = k.hash limit 1) is true
    or (select true from outlast.gate g where g.parked = k.hash limit 1) is true as is_used
  from outlast.limit_key k where {LONG_UNUSED} order by k.used_at limit $1 for update skip locked),
gone as (
  delete from outlast.limit_key k where k.hash = any(array(select hash from o where not is_used)))
update outlast.limit_key k set used_at = outlast.clock() where k.hash = any(array(select hash from o where is_used))"""  # noqa: S608  a fragment of our own

_STATE = f"""
select e.id, t.state from outlast.job e left join lateral ({TOKEN}) t on true
where e.id = $1 and ($2::text is null or e.tenant = $2)"""  # noqa: S608  fragments of our own


async def free_slots(db: Database, tokens: Sequence[ClaimToken]) -> int:
    """Give back the slots of claims; repeating it is harmless. Wakes whoever may start now."""
    rows = [(token.job_id, token.fence, token.claim_no, token.worker_id) for token in tokens]
    if not rows:
        return 0
    columns = [list(column) for column in zip(*rows, strict=True)]
    return await _give_back(db, await db.run(lambda conn: conn.fetch(db.in_schema(_NAMED), *columns)))


async def return_slots(db: Database, worker_id: WorkerId, held: Sequence[ClaimToken], *, before: datetime) -> int:
    """Give back what a worker holds and does not know of."""
    fences = [token.fence for token in held]
    return await _give_back(
        db, await db.run(lambda conn: conn.fetch(db.in_schema(_NOT_HELD), worker_id, fences, before))
    )


async def sweep_slots(db: Database, batch: int = 1000) -> int:
    """Give back up to `batch` slots of workers that are gone, and forget as many keys without use."""
    freed = await _give_back(db, await db.run(lambda conn: conn.fetch(db.in_schema(_ORPHANS), batch)))
    await db.run(lambda conn: conn.execute(db.in_schema(FORGET_KEYS), batch))
    return freed


async def release_slots(
    db: Database, job_id: JobId, *, tenant: str | None = None, audit: AuditEntry | None = None
) -> tuple[SlotView, ...]:
    """Take back what closed attempts of a job hold.

    Raises:
        OutlastError: `JOB_NOT_FOUND`; `JOB_STATE_CONFLICT` while its attempt is open; `NOT_FOUND` when it holds none;
            `SLOT_LOST` when somebody else was first.
    """
    await admit(db, job_id, tenant)
    found = await db.run(lambda conn: conn.fetchrow(db.in_schema(_STATE), job_id, tenant))
    if found is None:
        raise not_found(job_id)
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(SLOTS_OF_JOB), job_id))
    closed = [row for row in rows if not row["is_open"]]
    if not closed:
        raise still_open(job_id, found["state"]) if rows else holds_none(job_id)
    if not await _give_back(db, closed, audit):
        raise SlotLost(
            f"the slots of job {job_id} were given back meanwhile, by its worker, a sweep or somebody else",
            fix="nothing is left to take back: look at the held slots again",
        )
    return tuple(map(slot_view, closed))


def still_open(job_id: JobId, state: str | None) -> JobStateConflict:
    """Give the answer for slots of an attempt that is open."""
    return JobStateConflict(
        f"the attempt of job {job_id} is open, and its slots are its own",
        fix="cancel the job; release what its body still holds if it does not end",
        state=state,
    )


def holds_none(job_id: JobId) -> NotFound:
    """Give the answer for a job without slots."""
    return NotFound(f"job {job_id} holds no slot", fix="look at the held slots again: it may have ended meanwhile")


async def _give_back(db: Database, rows: Sequence[Row], audit: AuditEntry | None = None) -> int:
    if not rows:
        return 0
    keys: list[UUID] = sorted({row["hash"] for row in rows})
    columns = [[row[name] for row in rows] for name in ("hash", "job_id", "seq")]

    async def once(conn: Raw) -> Row | None:
        async with looking(conn):
            await conn.fetch(db.in_schema(LOCK_KEYS), keys)
            done = await conn.fetchrow(db.in_schema(GIVE_BACK), *columns)
            if audit is not None and done is not None:
                await keep(db, conn, audit.came_to(audit.outcome, slots=done["freed"]) if done["freed"] else None)
            return done

    done = await db.run(once)
    if done is None:
        raise AssertionError("a select without a table gives one row")
    if done["opened"]:
        await notify(db, Wake.READY)
    freed: int = done["freed"]
    return freed
