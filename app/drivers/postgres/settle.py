"""Settle: close attempts with their outcomes, each fenced by its whole token, in one statement and one commit.

Owns where a token goes after each outcome and what the ledger says of it. Zero rows is never success: what was not
settled is looked up, and answered with what took its place. Called by the worker's settle loop, its one exit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, assert_never

from ...domain.ledger import cause_of, error_of
from ...domain.outcome import (
    KIND_OF,
    RULE_OF,
    Cancelled,
    Completed,
    DeadLettered,
    Held,
    Interrupted,
    Outcome,
    Retried,
    SettleAnswer,
    Settlement,
    Snoozed,
    Suspended,
)
from ..protocol import Wake
from .buckets import CANCELLED, DEAD, DONE, NOT_STARTED
from .callbacks import TELL_ENDS
from .database import Database, Raw
from .keys import END_KEYS
from .ledger import TRIM_LEDGER
from .lock_order import in_both_forms
from .notify import notify
from .settle_runs import rounds_of, settle_with_runs, tell_of_ends, touches_run
from .superseded import superseded_by

# Where the token goes. Ends are numbered as `finished.state`; waits as 10 + `waiting.reason`.
_READY, _RETRY, _SNOOZE, _INTERRUPTED, _HELD = 1, 11, 12, 13, 20
_ENDS = f"{DONE}, {DEAD}, {CANCELLED}"

# Claims are read, and so locked, in the order of their ids. Sequences are unique per claim and sent in ascending order,
# so `width_bucket` finds a row's own settlement; every part of the token is then compared within that one. Two arrays
# tested apart would let a stale token settle a new claim.
_GONE = """
gone as (
  delete from outlast.running r
  where r.job_id = any($1::uuid[])
    and ($2::bigint[])[width_bucket(r.seq, $2::bigint[])] = r.seq
    and ($1::uuid[])[width_bucket(r.seq, $2::bigint[])] = r.job_id
    and ($3::int[])[width_bucket(r.seq, $2::bigint[])] = r.claim_no
    and {worker}
  returning r.*, width_bucket(r.seq, $2::bigint[]) as p),"""
_LIVE = "lost_at is null and w.closed_at is null and w.lease_until > outlast.clock()"
_ANY_WORKER = f"""($4::int[])[width_bucket(r.seq, $2::bigint[])] = r.worker
    and r.worker = any(array(
      select w.id from outlast.worker w where w.id = any($4::int[]) and w.{_LIVE}))"""  # noqa: S608  fragments of our own
_ONE_WORKER = f"r.worker = (select w.id from outlast.worker w where w.id = $4::int and w.{_LIVE})"  # noqa: S608  same

# An attempt that began leaves a row on the ledger, but one that snoozed: it takes the limit on its start away itself.
SETTLING = f"""
{_GONE.replace("{worker}", _ANY_WORKER).strip()}
g as materialized (
  select gone.*, ($5::smallint[])[p] as target,
    (gone.attempt - coalesce(($6::smallint[])[p], 0))::smallint as attempt_after,
    (gone.interrupts + coalesce(($7::smallint[])[p], 0))::smallint as interrupts_after from gone),
fin as (
  insert into outlast.finished(job_id, state, attempt, claim_no, crashes, interrupts, seq, worker, started_at,
    finished_at, result, reason, late)
  select job_id, target, attempt_after, claim_no, crashes, interrupts_after, seq, worker, claimed_at, outlast.clock(),
    ($9::text[])[p], ($10::text[])[p], coalesce(($11::boolean[])[p], false)
  from g where target in ({_ENDS})),
rdy as (
  insert into outlast.ready(queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts)
  select queue, rank & -2, job_id, name_id, attempt_after, claim_no, crashes, interrupts_after
  from g where target = {_READY} order by seq),
wai as (
  insert into outlast.waiting(due_at, job_id, queue, rank, name_id, attempt, claim_no, crashes, interrupts, reason)
  select outlast.clock() + ($8::interval[])[p], job_id, queue,
    case when target = {_RETRY} then rank | 1 else rank & -2 end, name_id, attempt_after, claim_no, crashes,
    interrupts_after, target - 10
  from g where target between {_RETRY} and {_INTERRUPTED}),
hel as (
  insert into outlast.held(job_id, queue, rank, name_id, attempt, claim_no, crashes, interrupts, reason)
  select job_id, queue, rank, name_id, attempt_after, claim_no, crashes, interrupts_after, ($10::text[])[p]
  from g where target = {_HELD}),
led as (
  insert into outlast.attempt(job_id, number, outcome, cause, counted, worker, host, code_version, started_at, ended_at,
    error_type, error_message, error_code, traceback, step)
  select g.job_id, g.claim_no, ($12::text[])[p], ($13::text[])[p], ($14::boolean[])[p], g.worker, w.host,
    w.code_version, g.claimed_at, outlast.clock(), ($15::text[])[p],
    ($16::text[])[p], ($17::text[])[p], ($18::text[])[p], ($19::text[])[p]
  from g left join lateral (select host, code_version from outlast.worker w where w.id = g.worker offset 0) w on true
  where ($12::text[])[p] is not null),
begun as (
  delete from outlast.expiry where ctid = any(array(
    select x.ctid from g cross join lateral (
      select e.ctid from outlast.expiry e where e.job_id = g.job_id and e.kind = {NOT_STARTED} offset 0) x
    where g.target = {_SNOOZE}))),
closed as not materialized (select job_id, claim_no from g where ($12::text[])[p] is not null),
{TRIM_LEDGER.strip()},
ended as materialized (
  select g.job_id, j.key_hash, j.callback is not null as calls_back, target as state, ($10::text[])[p] as reason,
    attempt_after as attempt
  from g
  left join lateral (select j.key_hash, j.callback from outlast.job j where j.id = g.job_id offset 0) j on true
  where target in ({_ENDS})),
{TELL_ENDS.strip()},
{END_KEYS.strip()}
"""  # noqa: S608  fragments of our own
SETTLE = f"with {SETTLING.strip()}\nselect seq from g"
SETTLE_IN_ORDER = in_both_forms(SETTLE)

# What nearly every batch of a busy worker is: claims of one worker whose bodies returned, of jobs without a key. There
# is no ledger row to write, no key to free, and the envelope is not read again. Binds $1 to $6.
SETTLING_DONE = f"""
{_GONE.replace("{worker}", _ONE_WORKER).strip()}
g as (
  insert into outlast.finished(job_id, state, attempt, claim_no, crashes, interrupts, seq, worker, started_at,
    finished_at, result, late)
  select job_id, {DONE}, attempt, claim_no, crashes, interrupts, seq, worker, claimed_at, outlast.clock(),
    ($5::text[])[p], coalesce(($6::boolean[])[p], false)
  from gone returning seq)"""  # noqa: S608  fragments of our own
SETTLE_DONE = f"with {SETTLING_DONE.strip()}\nselect seq from g"
SETTLE_DONE_IN_ORDER = in_both_forms(SETTLE_DONE)


class _Line(NamedTuple):
    """One settlement as the statement takes it: where to, what to subtract and add, what to write."""

    target: int
    uncounted: int = 0
    interrupts: int = 0
    delay: object = None
    result: str | None = None
    reason: str | None = None
    late: bool = False


async def settle(db: Database, settlements: Sequence[Settlement]) -> tuple[SettleAnswer, ...]:
    """Close attempts, answers in order; what is superseded leaves the others settled. Repeating one is harmless.

    A value that cannot be stored fails the call, and nothing of it is settled: give such settlements alone.
    """

    async def close(conn: Raw, some: Mapping[int, Settlement]) -> set[int]:
        return await _close(db, conn, some)

    won: set[int] = set()
    if any(map(touches_run, settlements)):
        won = await settle_with_runs(db, settlements, close)
    else:
        for one_round in rounds_of(dict(enumerate(settlements))):
            won |= await db.run(lambda conn, some=one_round: close(conn, some))  # type: ignore[misc] # bound now
    await tell(db, settlements, won)
    return await answers_of(db, settlements, won)


async def tell(db: Database, settlements: Sequence[Settlement], won: AbstractSet[int]) -> None:
    """Wake who waits for what was settled, and the runs that wait for the ends of their children."""
    ended = [settlements[index] for index in won]
    await wake(db, [one.outcome for one in ended])
    await free_places(db, settlements)
    await tell_of_ends(db, ended)


async def free_places(db: Database, settlements: Sequence[Settlement]) -> None:
    """Wake who waits for places of limited queues that these claims had, whoever ended them."""
    if db.limited.ended(settlement.token.fence for settlement in settlements):
        await notify(db, Wake.READY)


async def answers_of(
    db: Database, settlements: Sequence[Settlement], won: AbstractSet[int]
) -> tuple[SettleAnswer, ...]:
    """Give the answers, in order, once the indexes of the settled are known; what took the others is looked up."""
    answers = [SettleAnswer.SETTLED] * len(settlements)
    others = [index for index in range(len(settlements)) if index not in won]
    if others:
        reasons = await superseded_by(db, [settlements[index].token for index in others])
        for index, reason in zip(others, reasons, strict=True):
            answers[index] = reason
    return tuple(answers)


async def _close(db: Database, conn: Raw, settlements: Mapping[int, Settlement]) -> set[int]:
    """Settle those whose claims are held, no two of them one claim, and give their indexes."""
    ordered = dict(sorted(settlements.items(), key=lambda item: item[1].token.fence))
    index_of = {settlement.token.fence: index for index, settlement in ordered.items()}
    sent = as_sent(tuple(ordered.values()))
    sql = (SETTLE_DONE_IN_ORDER if sent.is_plain else SETTLE_IN_ORDER).on(db)
    return {index_of[row["seq"]] for row in await conn.fetch(sql, *sent.columns)}


class Sent(NamedTuple):
    """Settlements as a statement takes them: the binds, and whether they are those of `SETTLING_DONE`."""

    is_plain: bool
    columns: list[Any]


def as_sent(settlements: Sequence[Settlement]) -> Sent:
    """Give the binds of a batch: a column per value, settlements in the order of their sequences.

    A column without a value is null as a whole: encoding arrays is most of what sending a batch costs.
    """
    if any(settlement.is_keyed or type(settlement.outcome) is not Completed for settlement in settlements):
        return Sent(is_plain=False, columns=columns_of(settlements))
    tokens = [settlement.token for settlement in settlements]
    ids, numbers, workers, fences = (list(column) for column in zip(*tokens, strict=True))
    if workers.count(workers[0]) < len(workers):
        return Sent(is_plain=False, columns=columns_of(settlements))
    outcomes: list[Any] = [settlement.outcome for settlement in settlements]
    results, late = _column([outcome.result for outcome in outcomes]), [outcome.late for outcome in outcomes]
    return Sent(is_plain=True, columns=[ids, fences, numbers, workers[0], results, late if True in late else None])


def columns_of(settlements: Sequence[Settlement]) -> list[list[Any] | None]:
    """Give the binds of `SETTLING`, which takes every outcome."""
    rows = []
    for settlement in settlements:
        token, outcome = settlement.token, settlement.outcome
        rule, error = RULE_OF[KIND_OF[type(outcome)]], error_of(outcome)
        rows.append(
            (
                *(token.job_id, token.fence, token.claim_no, token.worker_id),
                *_line(outcome),
                *((rule.kind.value, cause_of(outcome), rule.counted) if rule.ledger else (None, None, None)),
                *((None,) * 4 if error is None else (error.type, error.message, error.code, error.traceback)),
                settlement.step if rule.ledger else None,
            )
        )
    return [_column(column) for column in zip(*rows, strict=True)]


def _column(values: Sequence[Any]) -> list[Any] | None:
    return None if all(value is None for value in values) else list(values)


def _line(outcome: Outcome) -> _Line:
    """Give where an outcome takes the token. A running attempt is counted already; `uncounted` takes that back."""
    match outcome:
        case Completed(result=result, late=late):
            return _Line(DONE, result=result, late=late)
        case DeadLettered(reason=dead_reason):
            return _Line(DEAD, reason=dead_reason.value)
        case Cancelled(reason=reason):
            return _Line(CANCELLED, uncounted=1, reason=reason)
        case Retried(delay=delay):
            return _Line(_RETRY, delay=delay)
        case Snoozed(delay=delay):
            return _Line(_SNOOZE, uncounted=1, delay=delay)
        case Interrupted(delay=None):
            return _Line(_READY, uncounted=1, interrupts=1)
        case Interrupted(delay=delay):
            return _Line(_INTERRUPTED, uncounted=1, interrupts=1, delay=delay)
        case Held(reason=reason):
            return _Line(_HELD, uncounted=1, reason=reason)
        case Suspended():
            raise AssertionError("a suspension has a statement of its own")
        case _:
            assert_never(outcome)


async def wake(db: Database, outcomes: Iterable[Outcome]) -> None:
    """Wake who waits for what these outcomes made ready or ended."""
    targets = {
        DONE if type(outcome) is Completed else _line(outcome).target
        for outcome in outcomes
        if not isinstance(outcome, Suspended)  # which tells of itself
    }
    wakes = []
    if _READY in targets:
        wakes.append(Wake.READY)
    if not targets.isdisjoint({_RETRY, _SNOOZE, _INTERRUPTED}):
        wakes.append(Wake.DELAYED)
    if not targets.isdisjoint({DONE, DEAD, CANCELLED}):
        wakes.append(Wake.FINISHED)
    if wakes:
        await notify(db, *wakes)
