"""`describe`, `attempts`, `finished_among`: what a job is, read in one statement and so in one snapshot.

Two statements could find a moving token in two buckets or in none. The tenant is part of the statement: another
tenant's job is as absent as one that never was. Also owns the columns of a job's view, which `listing` shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...domain.job import Counters, JobId, RunId, WorkerId
from ...domain.ledger import CAUSE_LATE, CAUSE_RETURNED, error_of_end
from ...domain.outcome import ErrorInfo, OutcomeKind
from ...domain.snapshot import AttemptView, ClaimView, JobView
from ...domain.state import State
from ...domain.step import ProgressView
from .buckets import DONE, TOKEN
from .database import Database, Raw, Row
from .rows import plain
from .run_view import WAIT_COLUMNS, WAITS, waits_of
from .tenant_wall import behind

# Of an envelope `e` and its token `t`; needs `AROUND`. Payload and result are added by who shows them.
VIEW = """
  e.id, coalesce(e.run_id, e.id) as run_id, n.name, e.queue, e.priority, e.tenant, e.max_attempts, e.max_crashes,
  e.created_at, e.run_at, e.key, e.parent_id, e.enqueued_by, e.traceparent, e.tags, e.meta, e.timeout_ms,
  t.state, t.attempt, t.claim_no, t.crashes, t.interrupts, t.due_at, t.reason, t.worker, t.started_at, t.finished_at,
  t.late, w.lease_until,
  case when w.renewed_at is not null
    then greatest(0, extract(epoch from outlast.clock() - w.renewed_at) * 1000)::bigint end as heartbeat_age_ms,
  k.expires_at as key_expires_at, a.outcome as last_outcome, a.error_type, a.error_message, a.error_code, a.traceback"""

AROUND = """
left join lateral (select n.name from outlast.job_name n where n.id = e.name_id offset 0) n on true
left join lateral (
  select w.lease_until, w.renewed_at from outlast.worker w
  where w.id = t.worker and t.state = 'running' offset 0) w on true
left join lateral (
  select k.expires_at from outlast.live_key k where k.hash = e.key_hash and k.job_id = e.id offset 0) k on true
left join lateral (
  select a.* from outlast.attempt a where a.job_id = e.id and t.claim_no > 0
  order by a.number desc limit 1) a on true"""

# A row for each wait of a suspended job, the payload in the first.
_WAIT_COLUMNS = ", ".join(f"w_{name}" for name in ("place", *WAIT_COLUMNS))
_DESCRIBE = f"""
select {VIEW}, case when coalesce(x.w_place, 1) = 1 then e.payload end as payload, t.result,
  p.value as progress_value, p.message as progress_message, p.at as progress_at, x.*
from outlast.job e cross join lateral ({TOKEN}) t {AROUND}
left join lateral (
  select p.value, p.message, p.at from outlast.progress p where p.job_id = e.id offset 0) p on true
left join lateral (
  select row_number() over (order by w.began_at, w.number, w.name), w.*
  from ({WAITS.replace("{job}", "e.id")} and t.state = '{State.SUSPENDED}') w offset 0) x({_WAIT_COLUMNS}) on true
where e.id = $1 and ($2::text is null or e.tenant = $2)
order by x.w_place"""  # noqa: S608  fragments of our own

_ATTEMPTS = f"""
with e as materialized (
  select j.id from outlast.job j where j.id = $1 and ($2::text is null or j.tenant = $2))
select number, outcome, cause, counted, worker, host, code_version, started_at, ended_at, step, error_type,
  error_message, error_code, traceback
from outlast.attempt where job_id = (select id from e)
union all
select f.claim_no, '{OutcomeKind.COMPLETED}', case when f.late then '{CAUSE_LATE}' else '{CAUSE_RETURNED}' end, true,
  f.worker, w.host, w.code_version, f.started_at, f.finished_at, null, null, null, null, null
from outlast.finished f left join outlast.worker w on w.id = f.worker
where f.job_id = (select id from e) and f.state = {DONE}
order by number"""  # noqa: S608  same

_FINISHED_AMONG = """
select i.id from unnest($1::uuid[]) as i(id)
left join lateral (select f.job_id from outlast.finished f where f.job_id = i.id offset 0) f on true
left join lateral (select j.id from outlast.job j where j.id = i.id and f.job_id is null offset 0) j on true
where j.id is null"""


async def describe(db: Database, job_id: JobId, *, tenant: str | None = None) -> JobView | None:
    """Give one job with payload and result, or None."""
    return await behind(db, tenant, lambda conn: describe_on(db, conn, job_id, tenant=tenant))


async def describe_on(db: Database, conn: Raw, job_id: JobId, *, tenant: str | None = None) -> JobView | None:
    """Do the same on the connection at hand, in its transaction if it has one."""
    rows = await conn.fetch(db.in_schema(_DESCRIBE), job_id, tenant)
    if not rows:
        return None
    first = rows[0]
    found = job_view(first, payload=first["payload"], result=first["result"])
    waits = [row for row in rows if row["w_place"] is not None]
    if not waits and first["progress_at"] is None:
        return found
    return replace(found, progress=_progress(first), waiting_on=waits_of(waits, prefix="w_"))


async def attempts(db: Database, job_id: JobId, *, tenant: str | None = None) -> tuple[AttemptView, ...]:
    """Give the ledger in order of claim numbers, the completing attempt last."""
    rows = await behind(db, tenant, lambda conn: conn.fetch(db.in_schema(_ATTEMPTS), job_id, tenant))
    return tuple(_attempt(row) for row in rows)


async def finished_among(db: Database, job_ids: Sequence[JobId]) -> frozenset[JobId]:
    """Say which of these jobs are terminal or gone, at the cost of one probe or two for each."""
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(_FINISHED_AMONG), list(job_ids)))
    return frozenset(JobId(plain(row["id"])) for row in rows)


def job_view(row: Row, *, payload: str | None = None, result: str | None = None) -> JobView:
    """Make a view of a row of `VIEW`."""
    state = State(row["state"])
    return JobView(
        id=JobId(plain(row["id"])),
        run_id=RunId(plain(row["run_id"])),
        name=row["name"],
        queue=row["queue"],
        state=state,
        state_reason=row["reason"],
        priority=row["priority"],
        tenant=row["tenant"],
        counters=_counters(row),
        max_attempts=row["max_attempts"],
        max_crashes=row["max_crashes"],
        created_at=row["created_at"],
        run_at=row["due_at"] or row["run_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        last_outcome=_last_outcome(row, state),
        error=_last_error(row, state),
        payload=payload,
        result=result,
        late=row["late"],
        claim=_claim(row) if state is State.RUNNING else None,
        key=row["key"],
        key_expires_at=row["key_expires_at"],
        parent_id=None if row["parent_id"] is None else JobId(plain(row["parent_id"])),
        enqueued_by=row["enqueued_by"],
        traceparent=row["traceparent"],
        tags=tuple(row["tags"] or ()),
        meta=row["meta"],
        timeout_ms=row["timeout_ms"],
    )


def _progress(row: Row) -> ProgressView | None:
    if row["progress_at"] is None:
        return None
    return ProgressView(value=row["progress_value"], message=row["progress_message"], at=row["progress_at"])


def _counters(row: Row) -> Counters:
    return Counters(
        attempt=row["attempt"], claim_no=row["claim_no"], crashes=row["crashes"], interrupts=row["interrupts"]
    )


def _claim(row: Row) -> ClaimView:
    return ClaimView(
        worker_id=WorkerId(row["worker"]),
        claimed_at=row["started_at"],
        lease_until=row["lease_until"],
        heartbeat_age_ms=row["heartbeat_age_ms"],
    )


def _last_outcome(row: Row, state: State) -> OutcomeKind | None:
    """Give how the last attempt ended. Completed and suspended attempts are not in the ledger."""
    if state is State.DONE:
        return OutcomeKind.COMPLETED
    if state is State.SUSPENDED or (state is State.DELAYED and row["reason"] == "snooze"):
        return OutcomeKind.SUSPENDED
    return None if row["last_outcome"] is None else OutcomeKind(row["last_outcome"])


def _last_error(row: Row, state: State) -> ErrorInfo | None:
    if state is State.DONE:
        return None
    return _error(row) or (error_of_end(row["reason"]) if state is State.DEAD else None)


def _error(row: Row) -> ErrorInfo | None:
    if row["error_type"] is None:
        return None
    return ErrorInfo(
        type=row["error_type"],
        message=row["error_message"] or "",
        code=row["error_code"],
        traceback=row["traceback"],
    )


def _attempt(row: Row) -> AttemptView:
    return AttemptView(
        number=row["number"],
        outcome=OutcomeKind(row["outcome"]),
        cause=row["cause"],
        counted=row["counted"],
        worker_id=None if row["worker"] is None else WorkerId(row["worker"]),
        host=row["host"],
        code_version=row["code_version"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        step=row["step"],
        error=_error(row),
    )
