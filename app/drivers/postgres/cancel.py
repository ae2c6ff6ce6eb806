"""`cancel`: one statement takes a job's token wherever it is to `finished` as cancelled.

Owns the repeat while the token moves: a statement that waited behind a claim or a settle has a snapshot from before
it, in which the token is where it no longer is, and touches nothing. Concludes nothing from that; looks again. A job
whose run calls others is cancelled with its children, and theirs, in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from ...domain.audit import AuditEntry
from ...domain.errors import Internal
from ...domain.job import JobId
from ...domain.ledger import CAUSE_OPERATOR
from ...domain.outcome import PARENT_CANCELLED, CancelVerdict, OutcomeKind
from ..protocol import Wake
from .absent import not_found
from .audit import audited, keep
from .buckets import CANCELLED, READY_CTID
from .callbacks import TELL_ENDS
from .database import Database, Raw, Row
from .keys import END_KEYS
from .ledger import TRIM_LEDGER
from .notify import REVOKES, notify
from .resolve import IS_BEFORE, IS_KEPT
from .run_locks import looking
from .waits import tell_parents

# Each look but the first waited for somebody's commit; a job that has no token at all must not be looked for for ever.
_LOOKS = 100

_COUNTERS = "job_id, attempt, claim_no, crashes, interrupts"

# The running row is taken first, then waits, before what is suspended, the keys last: the lock order of every verb.
# Without `$4` a job whose run waits for children is left alone, and only said to be one.
_CANCEL = f"""
with b as materialized (
  select j.id, j.seq, j.queue, j.priority, j.key_hash, j.parent_id, j.callback is not null as calls_back,
    (select bool_or(w.child_id is not null) from outlast.wait w where w.job_id = j.id) is true as calls
  from outlast.job j
  where j.id = $1 and ($2::text is null or j.tenant = $2)),
e as materialized (select * from b where $4::boolean or not calls),
run as (
  delete from outlast.running where job_id = (select id from e) returning {_COUNTERS}, seq, worker, claimed_at),
rdy as (
  delete from outlast.ready where ctid = any(array(select x.ctid from e cross join lateral ({READY_CTID}) x))
  returning {_COUNTERS}),
gat as (delete from outlast.gate where job_id = (select id from e) returning {_COUNTERS}),
wai as (delete from outlast.waiting where job_id = (select id from e) returning {_COUNTERS}),
wts as materialized (
  select w.ctid, w.child_id, w.awaited from outlast.wait w
  where w.job_id = (select id from e) and (select count(*) from run) >= 0 order by w.name for update),
sus as (
  delete from outlast.suspended where job_id = (select id from e) and (select count(*) from wts) >= 0
  returning {_COUNTERS}),
hld as (delete from outlast.held where job_id = (select id from e) returning {_COUNTERS}),
closed as materialized (
  select job_id, attempt - 1 as attempt, claim_no, crashes, interrupts, seq, worker, claimed_at from run),
gone as materialized (
  select * from closed
  union all select {_COUNTERS}, null, null, null from rdy
  union all select {_COUNTERS}, null, null, null from gat
  union all select {_COUNTERS}, null, null, null from wai
  union all select {_COUNTERS}, null, null, null from sus
  union all select {_COUNTERS}, null, null, null from hld),
dropped as (
  delete from outlast.wait where ctid = any(array(
    select w.ctid from wts w where exists (select from gone) and not ({IS_KEPT.strip()})))),
fin as (
  insert into outlast.finished({_COUNTERS}, state, seq, worker, started_at, reason)
  select {_COUNTERS}, {CANCELLED}, seq, worker, claimed_at, $3 from gone),
led as (
  insert into outlast.attempt(job_id, number, outcome, cause, counted, worker, host, code_version, started_at, ended_at)
  select c.job_id, c.claim_no, '{OutcomeKind.CANCELLED}', '{CAUSE_OPERATOR}', false, c.worker, w.host, w.code_version,
    c.claimed_at, outlast.clock()
  from closed c left join outlast.worker w on w.id = c.worker),
ended as materialized (
  select g.job_id, e.key_hash, e.calls_back, {CANCELLED} as state, $3::text as reason, g.attempt
  from gone g cross join e),
{TELL_ENDS},
{TRIM_LEDGER},
{END_KEYS}
select g.claim_no, g.worker, f.state as was, b.calls, b.parent_id,
  array(
    select distinct w.child_id from wts w
    cross join lateral (select j.parent_id from outlast.job j where j.id = w.child_id offset 0) j
    where j.parent_id = b.id order by 1) as children
from b left join gone g on true
left join lateral (select f.state from outlast.finished f where f.job_id = b.id offset 0) f on true"""  # noqa: S608  fragments of our own

# A job that was there before the call is nobody's child, or another's, and goes on.
_DROP_WAITS = f"""
with w as materialized (
  select w.ctid, w.child_id, $2::boolean and {IS_BEFORE.strip().format(branch="$3", number="$4", end="$5")}
    and {IS_KEPT.strip()} as stays
  from outlast.wait w where w.job_id = $1 order by w.name for update),
d as (delete from outlast.wait where ctid = any(array(select w.ctid from w where not w.stays)))
select distinct w.child_id from w
cross join lateral (select j.parent_id from outlast.job j where j.id = w.child_id offset 0) j
where j.parent_id = $1 and not (w.stays and $5::timestamptz is not null) order by 1"""  # noqa: S608  fragments of our own


class Before(NamedTuple):
    """The place and the end of a step: what a run has begun before it stays."""

    branch: str
    number: int
    end: datetime


async def cancel(
    db: Database, job_id: JobId, *, reason: str, tenant: str | None = None, audit: AuditEntry | None = None
) -> CancelVerdict:
    """End a job for good; its key is free, its claim revoked and its ledger written in the same commit.

    Repeating it is safe: the second call finds `already_finished`.

    Raises:
        JobNotFound: no such job, or another tenant's.
        Internal: the job has an envelope and no token, which no verb can bring about.
    """
    sql = db.in_schema(_CANCEL)

    async def look(conn: Raw) -> Row | None:
        return await _look(conn, sql, job_id, tenant, reason, is_family=False)

    found = await audited(db, look, audit, _told)
    ended: list[UUID] = [job_id]
    if found is not None and found["calls"]:

        async def once(conn: Raw) -> tuple[Row | None, list[UUID]]:
            async with looking(conn):
                found, family = await _family(db, conn, job_id, tenant, reason)
                await keep(db, conn, None if audit is None else _told(audit, found, is_family=True))
                return found, family

        found, ended = await db.run(once)
    if found is None:
        raise not_found(job_id)
    verdict = _verdict(found)
    if verdict is None:
        raise no_token(job_id)
    if verdict is not CancelVerdict.ALREADY_FINISHED:
        is_signal = verdict is CancelVerdict.SIGNALLED or len(ended) > 1
        await notify(db, Wake.FINISHED, *(REVOKES if is_signal else ()))
        await tell_parents(db, ended if found["parent_id"] is not None else ended[1:])
    return verdict


async def cancel_family(
    db: Database, conn: Raw, job_id: JobId, *, reason: str, tenant: str | None
) -> tuple[CancelVerdict | None, list[UUID]]:
    """Cancel a job that waits for others, with its children and theirs; gives those it cancelled, none for no verdict.

    In the transaction at hand. Whoever commits it tells of them.
    """
    found, ended = await _family(db, conn, job_id, tenant, reason)
    return (_verdict(found) if found is not None and ended else None), ended


async def cancel_children(
    db: Database, conn: Raw, job_id: UUID, *, keeps: bool = True, before: Before | None = None
) -> list[UUID]:
    """Drop what a job's run waits for, without steps, and cancel its children; gives those it cancelled.

    Calls that have ended stay, unless the run `keeps` none, and of a run that is cut back those `before` the cut. In
    the transaction at hand. Whoever commits it tells of them.
    """
    rows = await conn.fetch(db.in_schema(_DROP_WAITS), job_id, keeps, *(before or (None, None, None)))
    return await _cancel_all(db, conn, [row["child_id"] for row in rows])


async def tell_of_children(db: Database, cancelled: Sequence[UUID]) -> None:
    """Wake who is to know of children that were cancelled, once that is committed."""
    if cancelled:
        await notify(db, Wake.FINISHED, *REVOKES)
        await tell_parents(db, cancelled)


async def _family(
    db: Database, conn: Raw, job_id: UUID, tenant: str | None, reason: str
) -> tuple[Row | None, list[UUID]]:
    found = await _look(conn, db.in_schema(_CANCEL), job_id, tenant, reason, is_family=True)
    if found is None or found["claim_no"] is None:
        return found, []
    return found, [job_id, *await _cancel_all(db, conn, found["children"])]


async def _cancel_all(db: Database, conn: Raw, children: Sequence[UUID]) -> list[UUID]:
    """Cancel children and theirs, parents first."""
    ended: list[UUID] = []
    for child in children:
        found = await _look(conn, db.in_schema(_CANCEL), child, None, PARENT_CANCELLED, is_family=True)
        if found is not None and found["claim_no"] is not None:
            ended += [child, *await _cancel_all(db, conn, found["children"])]
    return ended


async def _look(conn: Raw, sql: str, job_id: UUID, tenant: str | None, reason: str, *, is_family: bool) -> Row | None:
    """Run the statement until it has found the token, or need not; None for a job that is not there."""
    found: Row | None = None
    for _ in range(_LOOKS):
        found = await conn.fetchrow(sql, job_id, tenant, reason, is_family)
        if found is None or (found["calls"] and not is_family) or _verdict(found) is not None:
            break
    return found


def no_token(job_id: JobId) -> Internal:
    """Give the answer for a job whose token never turned up."""
    return Internal(f"job {job_id} is in no bucket", fix="report this with the job's id")


def _told(audit: AuditEntry, found: Row | None, *, is_family: bool = False) -> AuditEntry | None:
    """Give the row of a cancel that has found its job; one whose run calls others is looked for once more."""
    verdict = None if found is None or (found["calls"] and not is_family) else _verdict(found)
    return None if verdict is None else audit.came_to(verdict.value)


def _verdict(found: Row) -> CancelVerdict | None:
    """Read what the statement did; None: it found the token nowhere, so it was moving."""
    if found["claim_no"] is None:
        return None if found["was"] is None else CancelVerdict.ALREADY_FINISHED
    if found["worker"] is not None:
        return CancelVerdict.SIGNALLED
    return CancelVerdict.CANCELLED_WHILE_WAITING if found["claim_no"] > 0 else CancelVerdict.CANCELLED_BEFORE_START
