"""`retry`: an operator gives a dead, cancelled or held job another life.

The token's move is one statement; the job's key is won before the finished row is deleted, so a job that cannot have
its key stays where it is. A run that does not go on as it is is `retry_cut`'s. Budgets are fresh;
claim number, interrupts and ledger go on. Time limits of the first enqueue (`run_at`,
`max_queue_time`, `deadline`) are dropped: they have usually passed, and would end the new life before it began.
"""

from __future__ import annotations

from ...domain.audit import AuditEntry
from ...domain.errors import JobDuplicate, JobStateConflict, OutlastError
from ...domain.job import JobId
from ...domain.state import RETRYABLE, State
from ...domain.step import RetryMode
from ..protocol import Wake
from .absent import not_found
from .audit import audited
from .buckets import CANCELLED, DEAD, NEW_RANK, TOKEN
from .cancel import no_token
from .database import Database, Raw, Row
from .notify import notify
from .retry_cut import Cut, retry_cut
from .rows import plain

_LOOKS = 100

# The key row is this job's own from its earlier life, or one whose window is over; anybody else's stays.
MINE = "k.job_id = excluded.job_id or (k.ended and (k.expires_at > outlast.clock()) is not true)"

_RETRY = f"""
with f as materialized (
  select f.job_id, f.claim_no, f.interrupts from outlast.finished f
  where f.job_id = (select j.id from outlast.job j where j.id = $1 and ($2::text is null or j.tenant = $2))
    and f.state in ({DEAD}, {CANCELLED}) for update),
e as materialized (
  select j.id, j.queue, j.priority, j.name_id, j.key_hash, j.fp, j.limit_names from outlast.job j
  where j.id = any(array(select job_id from f))),
k as (
  insert into outlast.live_key as k (hash, job_id, fp)
  select e.key_hash, e.id, coalesce(e.fp, 0) from e where e.key_hash is not null
  on conflict (hash) do update set job_id = excluded.job_id, fp = excluded.fp, ended = false,
    expires_at = case when k.job_id = excluded.job_id then k.expires_at end
  where {MINE}
  returning k.job_id),
won as materialized (select id from e where key_hash is null union all select job_id from k),
d as (
  delete from outlast.finished x where x.job_id = any(array(select id from won))
  returning x.job_id, x.claim_no, x.interrupts),
r as (
  insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
  select e.queue, {NEW_RANK}, d.job_id, e.name_id, 0, d.claim_no, 0, d.interrupts
  from d join e on e.id = d.job_id),
o as (
  update outlast.job set run_at = null, deadline_at = null
  where id = any(array(select job_id from d)) and (run_at is not null or deadline_at is not null)),
x as (delete from outlast.expiry where job_id = any(array(select job_id from d)))
select job_id from d"""  # noqa: S608  fragments of our own

_WHY_NOT = f"""
select t.state, k.job_id as holder
from outlast.job e left join lateral ({TOKEN}) t on true
left join lateral (
  select k.job_id from outlast.live_key k where k.hash = e.key_hash and k.job_id <> e.id
    and (not k.ended or k.expires_at > outlast.clock()) offset 0) k on true
where e.id = $1 and ($2::text is null or e.tenant = $2)"""  # noqa: S608  same


async def retry(
    db: Database,
    job_id: JobId,
    *,
    mode: RetryMode = RetryMode.RESUME,
    from_step: str | None = None,
    tenant: str | None = None,
    audit: AuditEntry | None = None,
) -> None:
    """Make a dead, cancelled or held job ready again with fresh budgets, its run as asked for.

    Not idempotent: the second call finds a ready job. Looks again, in a new statement, when what stood in the way has
    gone in the meantime.

    Raises:
        OutlastError: `JOB_NOT_FOUND`; `JOB_STATE_CONFLICT` in another state; `JOB_DUPLICATE` when another job holds
            the key; `NOT_FOUND` for a step that the run has not recorded; `REQUEST_INVALID` for a step of a fresh run.
    """
    mode.refuse_step(from_step)
    goes_on = mode is RetryMode.RESUME and from_step is None

    async def look(conn: Raw) -> Row | None:
        return await conn.fetchrow(db.in_schema(_RETRY), job_id, tenant)

    for _ in range(_LOOKS):
        if goes_on:
            found = await audited(db, look, audit, lambda entry, row: None if row is None else entry)
        else:
            cut = Cut(is_fresh=mode is RetryMode.FRESH, from_step=from_step)
            found = await retry_cut(db, _RETRY, job_id, cut, tenant=tenant, audit=audit)
        if found is not None:
            await notify(db, Wake.READY)
            return
        found = await db.run(lambda conn: conn.fetchrow(db.in_schema(_WHY_NOT), job_id, tenant))
        refusal = _refusal(job_id, found, goes_on=goes_on)
        if refusal is not None:
            raise refusal
    raise no_token(job_id)


def _refusal(job_id: JobId, found: Row | None, *, goes_on: bool) -> OutlastError | None:
    """Give the reason why the statement moved nothing, or None when there is none any more."""
    if found is None:
        return not_found(job_id)
    if found["state"] is None:
        return None
    state = State(found["state"])
    if state is State.HELD and goes_on:
        return JobStateConflict(
            f"job {job_id} is held: its run does not fit the code",
            fix="retry it fresh or from a step, or release it",
            state=state.value,
        )
    if state not in RETRYABLE | {State.HELD}:
        return JobStateConflict(
            f"job {job_id} is {state}, and only dead, cancelled and held jobs can be retried",
            fix="wait until it has ended, or cancel it first; a done job is enqueued anew",
            state=state.value,
        )
    if found["holder"] is None:
        return None
    return JobDuplicate(
        f"job {found['holder']} holds the idempotency key of job {job_id}",
        fix="wait until that job has ended and its key is free, or cancel it, then retry",
        existing_id=JobId(plain(found["holder"])),
    )
