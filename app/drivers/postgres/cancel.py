"""`cancel`: one statement takes a job's token wherever it is to `finished` as cancelled.

Owns the repeat while the token moves: a statement that waited behind a claim or a settle has a snapshot from before
it, in which the token is where it no longer is, and touches nothing. Concludes nothing from that; looks again.
"""

from __future__ import annotations

from ...domain.errors import Internal, JobNotFound
from ...domain.job import JobId
from ...domain.ledger import CAUSE_OPERATOR
from ...domain.outcome import CancelVerdict, OutcomeKind
from ..protocol import Wake
from .buckets import CANCELLED, READY_CTID
from .database import Database, Row
from .keys import END_KEYS
from .ledger import TRIM_LEDGER
from .notify import notify

# Each look but the first waited for somebody's commit; a job that has no token at all must not be looked for for ever.
_LOOKS = 100

_COUNTERS = "job_id, attempt, claim_no, crashes, interrupts"

# The running row is taken first, the keys last: the lock order of every verb.
_CANCEL = f"""
with e as materialized (
  select j.id, j.seq, j.queue, j.priority, j.key_hash from outlast.job j
  where j.id = $1 and ($2::text is null or j.tenant = $2)),
run as (
  delete from outlast.running where job_id = (select id from e) returning {_COUNTERS}, seq, worker, claimed_at),
rdy as (
  delete from outlast.ready where ctid = any(array(select x.ctid from e cross join lateral ({READY_CTID}) x))
  returning {_COUNTERS}),
wai as (delete from outlast.waiting where job_id = (select id from e) returning {_COUNTERS}),
hld as (delete from outlast.held where job_id = (select id from e) returning {_COUNTERS}),
closed as materialized (
  select job_id, attempt - 1 as attempt, claim_no, crashes, interrupts, seq, worker, claimed_at from run),
gone as materialized (
  select * from closed
  union all select {_COUNTERS}, null, null, null from rdy
  union all select {_COUNTERS}, null, null, null from wai
  union all select {_COUNTERS}, null, null, null from hld),
fin as (
  insert into outlast.finished({_COUNTERS}, state, seq, worker, started_at, reason)
  select {_COUNTERS}, {CANCELLED}, seq, worker, claimed_at, $3 from gone),
led as (
  insert into outlast.attempt(job_id, number, outcome, cause, counted, worker, host, code_version, started_at, ended_at)
  select c.job_id, c.claim_no, '{OutcomeKind.CANCELLED}', '{CAUSE_OPERATOR}', false, c.worker, w.host, w.code_version,
    c.claimed_at, outlast.clock()
  from closed c left join outlast.worker w on w.id = c.worker),
ended as materialized (select g.job_id, e.key_hash from gone g cross join e),
{TRIM_LEDGER},
{END_KEYS}
select g.claim_no, g.worker, f.state as was
from e left join gone g on true
left join lateral (select f.state from outlast.finished f where f.job_id = e.id offset 0) f on true"""  # noqa: S608  fragments of our own


async def cancel(db: Database, job_id: JobId, *, reason: str, tenant: str | None = None) -> CancelVerdict:
    """End a job for good; its key is free, its claim revoked and its ledger written in the same commit.

    Repeating it is safe: the second call finds `already_finished`.

    Raises:
        JobNotFound: no such job, or another tenant's.
        Internal: the job has an envelope and no token, which no verb can bring about.
    """
    for _ in range(_LOOKS):
        found = await db.run(lambda conn: conn.fetchrow(db.in_schema(_CANCEL), job_id, tenant, reason))
        if found is None:
            raise not_found(job_id)
        verdict = _verdict(found)
        if verdict is None:
            continue
        if verdict is CancelVerdict.SIGNALLED:
            await notify(db, Wake.REVOKED, Wake.FINISHED)
        elif verdict is not CancelVerdict.ALREADY_FINISHED:
            await notify(db, Wake.FINISHED)
        return verdict
    raise no_token(job_id)


def not_found(job_id: JobId) -> JobNotFound:
    """Give the answer for an id that is absent or another tenant's; the two cannot be told apart."""
    return JobNotFound(
        f"there is no job {job_id}", fix="check the id and the tenant; finished jobs are purged after their retention"
    )


def no_token(job_id: JobId) -> Internal:
    """Give the answer for a job whose token never turned up."""
    return Internal(f"job {job_id} is in no bucket", fix="report this with the job's id")


def _verdict(found: Row) -> CancelVerdict | None:
    """Read what the statement did; None: it found the token nowhere, so it was moving."""
    if found["claim_no"] is None:
        return None if found["was"] is None else CancelVerdict.ALREADY_FINISHED
    if found["worker"] is not None:
        return CancelVerdict.SIGNALLED
    return CancelVerdict.CANCELLED_WHILE_WAITING if found["claim_no"] > 0 else CancelVerdict.CANCELLED_BEFORE_START
