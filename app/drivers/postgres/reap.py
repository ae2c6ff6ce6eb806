"""`reap` and `surrender`: claims are taken from a worker that is gone, and booked under what became of it.

Two statements: the first marks workers whose lease has passed, for good (`lost_at` is never taken back); the second is
level-triggered and takes the claims of every worker that is lost, closed or absent, whoever marked it and whenever. One
statement doing both would take claims of a worker whose renewal then commits, or leave those it did not mark itself.
"""

from __future__ import annotations

from ...domain.drain import LAST_PHASE
from ...domain.job import JobId, WorkerId
from ...domain.ledger import (
    CAUSE_ABANDONED,
    CAUSE_LEASE_LOST,
    CAUSE_WORKER_CLOSED,
    CAUSE_WORKER_VANISHED,
    CRASHED_TOO_OFTEN,
)
from ...domain.outcome import OutcomeKind
from ...domain.snapshot import Reaped
from ...domain.state import DeadReason
from ..protocol import Wake
from .buckets import DEAD
from .callbacks import TELL_ENDS
from .database import Database, Row
from .keys import END_KEYS
from .ledger import TRIM_LEDGER
from .notify import REVOKES, notify
from .pinned import true_id, true_name
from .rows import plain
from .waits import tell_parents

# A standby that took the server's place was started long before it served, and not everybody may ask when that was:
# only when the last commit of its predecessor was, null on a server that was none. It served when a worker registered
# after that, or else before the lease had passed of one that has renewed since. Who has not has a lease from then.
_LAST_BEFORE = "pg_last_xact_replay_timestamp()"
_PROMOTED_LONG_AGO = f"""({_LAST_BEFORE} is null or renewed_at > {_LAST_BEFORE} or exists (
    select from outlast.worker v
    where v.renewed_at > {_LAST_BEFORE} and worker.lease_ms * interval '1 ms' + case
      when v.started_at > {_LAST_BEFORE} then v.started_at
      else {_LAST_BEFORE} + v.lease_ms * interval '1 ms' end <= outlast.clock()))"""
# A renewal in flight holds the worker's row: it is skipped, and judged by its new lease at the next sweep. Leases could
# not be renewed while the server was down, so none is judged before one lease after its start, or its promotion.
LAPSED = f"""
  lost_at is null and closed_at is null and lease_until <= outlast.clock()
  and pg_postmaster_start_time() + lease_ms * interval '1 ms' <= outlast.clock()
  and {_PROMOTED_LONG_AGO}"""
_MARK_LOST = f"""
update outlast.worker set lost_at = outlast.clock()
where {LAPSED} and id = any(array(
  select id from outlast.worker where {LAPSED} order by id for update skip locked))"""  # noqa: S608  same

# Of a claim `r`: nobody works under it any more.
ORPHANED = """not exists (
    select from outlast.worker w where w.id = r.worker and w.lost_at is null and w.closed_at is null)"""

# Ends with the CTE `gone`: what was deleted from `running`.
_TAKE_FROM_THE_GONE = f"""
with taken as materialized (
  select r.job_id from outlast.running r
  where {ORPHANED}
  order by r.job_id limit $1 for update of r skip locked),
gone as (delete from outlast.running where job_id = any(array(select job_id from taken)) returning *),"""  # noqa: S608  fragments of our own

# The worker's row comes before its claims; a reaper that has some of them is waited for, and keeps what it took. They
# are found as they lie, without an index, and locked in the order of their ids.
_TAKE_OWN = """
with closing as (
  update outlast.worker set closed_at = coalesce(closed_at, outlast.clock()) where id = $1 returning id),
taken as materialized (
  select job_id from outlast.running
  where job_id = any(array(select o.job_id from outlast.running o where o.worker = $1))
    and (select count(*) from closing) >= 0
  order by job_id for update),
gone as (delete from outlast.running where job_id = any(array(select job_id from taken)) returning *),"""

_INTERRUPTED = f"'{OutcomeKind.INTERRUPTED}'"
_CRASHED = f"'{OutcomeKind.CRASHED}'"
_LEASE_LOST = f"'{OutcomeKind.LEASE_LOST}'"

# Outcome and cause of a claim `g` of worker `w`; one that closed its row in time did not vanish without a word. Nor did
# one whose drain came to its close: a claim it has not named as abandoned never reached its blocked loop, or has ended.
# Nor did one that has surrendered since it was lost: a claim that was committed after both is one it does not know of.
_LEFT_IN_ORDER = f"(w.closed_at is not null and w.lost_at is null or w.drain_phase = '{LAST_PHASE}')"
_SURRENDERED = "w.closed_at is not null"
_JUDGED = f"""
  case when g.abandoned or {_LEFT_IN_ORDER} then {_INTERRUPTED} when {_SURRENDERED} then {_LEASE_LOST}
    else {_CRASHED} end as outcome,
  case when g.abandoned then '{CAUSE_ABANDONED}' when {_LEFT_IN_ORDER} then '{CAUSE_WORKER_CLOSED}'
    when {_SURRENDERED} then '{CAUSE_LEASE_LOST}' else '{CAUSE_WORKER_VANISHED}' end as cause"""
_LOST = f"{_LEASE_LOST} as outcome, '{CAUSE_LEASE_LOST}' as cause"


def _booked(take: str, judged: str) -> str:
    """Give the statement that takes claims, judges each and books it: ready again or dead, with a ledger row."""
    return f"""{take}
judged as materialized (
  select g.*, w.host, w.code_version, e.max_crashes, e.key_hash, e.parent_id, e.calls_back, {judged}
  from gone g
  left join lateral (select * from outlast.worker w where w.id = g.worker offset 0) w on true
  left join lateral (
    select j.max_crashes, j.key_hash, j.parent_id, j.callback is not null as calls_back
    from outlast.job j where j.id = g.job_id offset 0) e on true),
closed as materialized (
  select j.*, outcome = {_CRASHED} and alone and crashes + 1 >= max_crashes as is_dead,
    case when outcome = {_CRASHED} and (alone or crashes + 1 < coalesce(max_crashes, 32767))
      then crashes + 1 else crashes end as crashes_now,
    case when outcome = {_INTERRUPTED} then interrupts + 1 else interrupts end as interrupts_now
  from judged j),
rdy as (
  insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
  select queue, rank / 2 * 2, job_id, {true_id("closed")}, attempt - 1, claim_no, crashes_now, interrupts_now
  from closed where is_dead is not true order by job_id),
fin as (
  insert into outlast.finished(
    job_id, state, attempt, claim_no, crashes, interrupts, seq, worker, started_at, reason)
  select job_id, {DEAD}, attempt - 1, claim_no, crashes_now, interrupts_now, seq, worker, claimed_at,
    '{DeadReason.CRASHED_TOO_OFTEN}'
  from closed where is_dead),
led as (
  insert into outlast.attempt(
    job_id, number, outcome, cause, counted, worker, host, code_version, started_at, ended_at,
    error_type, error_message, error_code)
  select job_id, claim_no, outcome, cause, false, worker, host, code_version, claimed_at, outlast.clock(),
    case when is_dead then '{CRASHED_TOO_OFTEN.type}' end, case when is_dead then '{CRASHED_TOO_OFTEN.message}' end,
    case when is_dead then '{CRASHED_TOO_OFTEN.code}' end
  from closed),
ended as materialized (
  select job_id, key_hash, calls_back, {DEAD} as state, '{DeadReason.CRASHED_TOO_OFTEN}' as reason,
    attempt - 1 as attempt
  from closed where is_dead),
{TELL_ENDS},
{TRIM_LEDGER},
{END_KEYS}
select c.job_id, c.queue, c.claim_no, c.worker, c.outcome, c.cause, c.attempt,
  outlast.clock() - c.claimed_at as lasted, c.is_dead, n.name, c.parent_id
from closed c left join outlast.job_name n on n.id = c.name_id order by c.job_id"""  # noqa: S608  same


_SWEEP = _booked(_TAKE_FROM_THE_GONE, _JUDGED)
_SURRENDER = _booked(_TAKE_OWN, _LOST)


async def reap(db: Database, batch: int = 1000) -> tuple[Reaped, ...]:
    """Take over up to `batch` claims of workers that are gone.

    Safe to run anywhere at any time: two reapers never take the same claim, and what one leaves the next one finds.
    """
    await db.run(lambda conn: conn.execute(db.in_schema(_MARK_LOST)))
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(_SWEEP), batch))
    return await _told(db, rows)


async def surrender(db: Database, worker_id: WorkerId) -> tuple[Reaped, ...]:
    """Close a worker that judged its own lease over and give back what it holds, counted in no budget.

    Repeating it is safe. What a reaper took before stays as the reaper recorded it.
    """
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(_SURRENDER), worker_id))
    return await _told(db, rows)


async def _told(db: Database, rows: list[Row]) -> tuple[Reaped, ...]:
    reaped = tuple(_reaped(row) for row in rows)
    if reaped:
        await notify(db, *REVOKES, *((Wake.FINISHED,) if any(one.is_dead for one in reaped) else ()))
    await tell_parents(db, [row["job_id"] for row in rows if row["is_dead"] and row["parent_id"] is not None])
    return reaped


def _reaped(row: Row) -> Reaped:
    return Reaped(
        job_id=JobId(plain(row["job_id"])),
        name=true_name(row["name"] or ""),
        queue=row["queue"],
        claim_no=row["claim_no"],
        worker_id=WorkerId(row["worker"]),
        outcome=OutcomeKind(row["outcome"]),
        cause=row["cause"],
        attempt=row["attempt"],
        lasted=row["lasted"],
        is_dead=bool(row["is_dead"]),
    )
