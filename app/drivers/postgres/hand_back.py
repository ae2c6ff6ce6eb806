"""Hand back: settle an attempt whose code does not fit the run or the payload.

Ready for the workers of one version while one lives that serves its queue, else held, or dead. What becomes of such
jobs later is `versions`'. Called by `settle_runs`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...domain.errors import PayloadInvalid
from ...domain.ledger import CAUSE_ERROR, CAUSE_HANDED_BACK, CAUSE_HELD
from ...domain.outcome import HAND_BACK, ErrorInfo, Held, OutcomeKind, Settlement
from ...domain.state import DeadReason
from ..protocol import Wake
from .buckets import DEAD
from .callbacks import TELL_ENDS
from .database import Database, Raw
from .keys import END_KEYS
from .ledger import TRIM_LEDGER
from .names import name_ids
from .pinned import pinned_name, served

HOUR = f"interval '{int(HAND_BACK.total_seconds())} s'"

_ABOUT = """
select n.name, t.code_version as newest, w.code_version as own
from outlast.job j
left join lateral (select n.name from outlast.job_name n where n.id = j.name_id offset 0) n on true
left join lateral (select t.code_version from outlast.job_type t where t.name = n.name offset 0) t on true
left join lateral (select w.code_version from outlast.worker w where w.id = $2 offset 0) w on true
where j.id = $1"""

_SERVED = served("$5::text", "g.queue")
# `$5` the version the job is for, `$6` the id of its type's name at that version; `$7` reason, `$8` whether it is dead
# without one, `$9` the version it is held for.
HAND = f"""
with gone as (
  delete from outlast.running r
  where r.job_id = $1 and r.seq = $2 and r.claim_no = $3 and r.worker = (
    select w.id from outlast.worker w
    where w.id = $4 and w.lost_at is null and w.closed_at is null and w.lease_until > outlast.clock())
  returning r.*),
g as materialized (
  select g.*, e.name_id as true_id, e.key_hash, e.calls_back, w.host, w.code_version,
    case when $5::text is not null and {_SERVED} then 'handed' when $8 then 'dead' else 'held' end as way
  from gone g
  left join lateral (
    select j.name_id, j.key_hash, j.callback is not null as calls_back
    from outlast.job j where j.id = g.job_id offset 0) e on true
  left join lateral (select w.host, w.code_version from outlast.worker w where w.id = g.worker offset 0) w on true),
rdy as (
  insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
  select queue, rank & -2, job_id, $6::int, attempt - 1, claim_no, crashes, interrupts from g where way = 'handed'),
hnd as (
  insert into outlast.handed as h (job_id, version, until_at, claim_no, reason, or_dead)
  select job_id, $5, outlast.clock() + {HOUR}, claim_no, $7, $8 from g where way = 'handed'
  on conflict (job_id) do update set version = excluded.version, until_at = excluded.until_at,
    claim_no = excluded.claim_no, reason = excluded.reason, or_dead = excluded.or_dead),
hel as (
  insert into outlast.held(job_id, queue, rank, name_id, attempt, claim_no, crashes, interrupts, reason, version)
  select job_id, queue, rank, coalesce(true_id, name_id), attempt - 1, claim_no, crashes, interrupts, $7, $9
  from g where way = 'held'),
fin as (
  insert into outlast.finished(job_id, state, attempt, claim_no, crashes, interrupts, seq, worker, started_at, reason)
  select job_id, {DEAD}, attempt, claim_no, crashes, interrupts, seq, worker, claimed_at, '{DeadReason.TERMINAL}'
  from g where way = 'dead'),
led as (
  insert into outlast.attempt(job_id, number, outcome, cause, counted, worker, host, code_version, started_at, ended_at,
    error_type, error_message, error_code, traceback, step)
  select job_id, claim_no, case way when 'dead' then '{OutcomeKind.DEAD_LETTERED}' else '{OutcomeKind.HELD}' end,
    case way when 'dead' then '{CAUSE_ERROR}' when 'held' then '{CAUSE_HELD}' else '{CAUSE_HANDED_BACK}' end,
    way = 'dead', worker, host, code_version, claimed_at, outlast.clock(), $10, $11, $12, $13, $14
  from g),
closed as not materialized (select job_id, claim_no from g),
{TRIM_LEDGER.strip()},
ended as materialized (
  select job_id, key_hash, calls_back, {DEAD} as state, '{DeadReason.TERMINAL}' as reason, attempt
  from g where way = 'dead'),
{TELL_ENDS.strip()},
{END_KEYS.strip()}
select way from g"""  # noqa: S608  fragments of our own


@dataclass(slots=True)
class HandBack:
    """One settlement on its way whose code does not fit."""

    settlement: Settlement
    outcome: Held
    version: str | None = None
    pinned: int | None = None

    async def prepare(self, db: Database) -> None:
        """Learn, before the transaction, which version the job is for and its type's name there."""
        token = self.settlement.token
        about = await db.run(lambda conn: conn.fetchrow(db.in_schema(_ABOUT), token.job_id, token.worker_id))
        if about is None:
            return
        newest = None if about["newest"] == about["own"] else about["newest"]
        self.version = newest if self.outcome.or_dead else self.outcome.version
        if self.version is not None:
            name = pinned_name(about["name"], self.version)
            self.pinned = (await name_ids(db, [name]))[name]

    async def settle(self, db: Database, conn: Raw) -> tuple[Wake, ...] | None:
        """Settle it and give who is to be woken; None: the claim is gone."""
        job_id, claim_no, worker_id, fence = self.settlement.token
        outcome = self.outcome
        way = await conn.fetchval(
            db.in_schema(HAND),
            *(job_id, fence, claim_no, worker_id, self.version, self.pinned, outcome.reason, outcome.or_dead),
            *(outcome.version, *_error(outcome), self.settlement.step),
        )
        if way is None:
            return None
        return {"handed": (Wake.READY,), "dead": (Wake.FINISHED,), "held": ()}[way]


def _error(outcome: Held) -> tuple[str | None, ...]:
    error = outcome.error
    if error is None and outcome.or_dead:
        error = ErrorInfo(type=PayloadInvalid.__name__, message=outcome.reason, code=PayloadInvalid.code)
    return (None,) * 4 if error is None else (error.type, error.message, error.code, error.traceback)
