"""`run_now`: a delayed job becomes ready before its time, or a run's sleep ends before its own.

The token's move is the one that `promote` makes. A sleep is only made due here: what a sweep does to it then, `waits`
does at once, and any worker if that fails. Looks again while the token is moving.
"""

from __future__ import annotations

from ...domain.audit import UNCHANGED, AuditEntry
from ...domain.edit import RunNowVerdict
from ...domain.errors import OutlastError
from ...domain.job import JobId
from ...domain.state import State
from ...domain.step import StepKind
from ..actions import cannot_run_now
from ..protocol import Wake
from .absent import not_found
from .audit import audited
from .buckets import TOKEN
from .cancel import no_token
from .database import Database, Raw, Row
from .notify import notify
from .resolve import KIND_CODES
from .waits import wake

_LOOKS = 100

# The delete takes the transaction id before `ready` draws its number: a claim may rely on that order.
_RUN_NOW = f"""
with e as materialized (
  select j.id, j.seq, j.queue, j.priority from outlast.job j
  where j.id = $1 and ($2::text is null or j.tenant = $2)),
t as (delete from outlast.waiting where job_id = (select id from e) returning *),
r as (
  insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
  select queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts from t),
o as (
  update outlast.job set run_at = outlast.clock()
  where id = any(array(select job_id from t)) and run_at > outlast.clock()),
w as materialized (
  select w.job_id, w.name from outlast.wait w
  where w.job_id = (select id from e) and w.kind = {KIND_CODES[StepKind.SLEEP]}
    and exists (select from outlast.suspended s where s.job_id = w.job_id)
  order by w.name for update of w),
d as (
  update outlast.wait w set due_at = least(w.due_at, outlast.clock())
  where w.job_id = (select id from e) and w.name = any(array(select name from w)) returning w.name)
select (select count(*) from t) as moved, (select count(*) from d) as ended, t.state,
  exists (select from outlast.wait w where w.job_id = e.id and w.kind = {KIND_CODES[StepKind.SLEEP]}) as sleeps
from e left join lateral ({TOKEN}) t on true"""  # noqa: S608  fragments of our own

_NOTHING_TO_DO = {State.READY: RunNowVerdict.ALREADY_READY, State.RUNNING: RunNowVerdict.ALREADY_RUNNING}


async def run_now(
    db: Database, job_id: JobId, *, tenant: str | None = None, audit: AuditEntry | None = None
) -> RunNowVerdict:
    """Let a delayed job start at once, or end the sleeps of a suspended run. Safe to repeat.

    Raises:
        OutlastError: `JOB_NOT_FOUND`; `JOB_STATE_CONFLICT` where there is no time to pass over.
    """

    async def look(conn: Raw) -> Row | None:
        return await conn.fetchrow(db.in_schema(_RUN_NOW), job_id, tenant)

    for _ in range(_LOOKS):
        found = await audited(db, look, audit, _told)
        if found is None:
            raise not_found(job_id)
        verdict = _verdict(found)
        if verdict is not None:
            await _tell(db, verdict)
            return verdict
        # Delayed or asleep, and yet not moved: somebody else moved it, and by this statement's snapshot it still is.
        is_moving = found["state"] in {None, State.DELAYED} or (found["state"] == State.SUSPENDED and found["sleeps"])
        if not is_moving:
            raise cannot_run_now(job_id, State(found["state"]))
    raise no_token(job_id)


def _verdict(found: Row) -> RunNowVerdict | None:
    if found["moved"]:
        return RunNowVerdict.MADE_READY
    if found["ended"]:
        return RunNowVerdict.SLEEP_ENDED
    return None if found["state"] is None else _NOTHING_TO_DO.get(State(found["state"]))


def _told(entry: AuditEntry, found: Row | None) -> AuditEntry | None:
    verdict = None if found is None else _verdict(found)
    if verdict is None:
        return None
    is_change = verdict in {RunNowVerdict.MADE_READY, RunNowVerdict.SLEEP_ENDED}
    return entry.came_to(verdict.value if is_change else UNCHANGED, verdict=verdict.value)


async def _tell(db: Database, verdict: RunNowVerdict) -> None:
    if verdict is RunNowVerdict.MADE_READY:
        await notify(db, Wake.READY)
    if verdict is RunNowVerdict.SLEEP_ENDED:
        await end_sleeps(db)


async def end_sleeps(db: Database) -> None:
    """End the sleeps that a committed action has made due; repeating it is safe."""
    await notify(db, Wake.DELAYED)
    try:
        await wake(db)
    except OutlastError:
        return  # the action stands; whichever worker looks next ends the sleep
