"""Settle: close attempts with their outcomes, each fenced by its own token, and say what took those that were gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias, assert_never

from ...domain.job import LANE_NEW, LANE_RESUMED, ClaimedJob, ClaimToken, JobId
from ...domain.ledger import cause_of, error_of
from ...domain.outcome import (
    KIND_OF,
    Cancelled,
    Completed,
    DeadLettered,
    Held,
    Interrupted,
    Retried,
    SettleAnswer,
    Settlement,
    Snoozed,
    Suspended,
)
from ...domain.state import State
from ..protocol import ClaimRequest
from .attempts import End, close_attempt
from .cancel import drop_waits
from .claim import claim_at, refuse_empty
from .rows import Ready, Running, Token, Wait, Waiting
from .store import Store
from .suspend import Children, Suspending, store_children, suspended
from .versions import put_aside
from .waking import wake_parents

# The outcomes whose target is theirs alone; what others lead to depends on the run or on who lives.
_Plain: TypeAlias = Completed | Snoozed | Retried | DeadLettered | Interrupted | Cancelled


def settle(store: Store, settlements: Sequence[Settlement]) -> tuple[SettleAnswer, ...]:
    """Close attempts, answers in order; see `JobDriver.settle`.

    What becomes ready again does so in the order it was claimed in, whatever the order of the batch.
    """
    with store.statement() as now:
        return _settle_all(store, settlements, now)


def settle_and_claim(
    store: Store, settlements: Sequence[Settlement], request: ClaimRequest
) -> tuple[tuple[SettleAnswer, ...], tuple[ClaimedJob, ...]]:
    """Close attempts, then take ready jobs; see `JobDriver.settle_and_claim`.

    Raises:
        QueuesEmpty: the request names no queue.
    """
    refuse_empty(request)
    with store.statement() as now:
        answers = _settle_all(store, settlements, now)
        return answers, claim_at(store, request, now)


def _settle_all(store: Store, settlements: Sequence[Settlement], now: datetime) -> tuple[SettleAnswer, ...]:
    children = store_children(store, settlements, now)
    by_claim = sorted(enumerate(settlements), key=lambda item: item[1].token.fence)
    answers = {place: _settle_one(store, settlement, children, now) for place, settlement in by_claim}
    ended = [one.token.job_id for one in settlements if one.is_child and store.has_ended(one.token.job_id)]
    wake_parents(store, ended, now)
    return tuple(answers[place] for place in range(len(settlements)))


def superseded_by(store: Store, token: ClaimToken) -> SettleAnswer:
    """Say what took a claim that is gone: a cancel, a delete, or whoever settled or reaped it."""
    if token.job_id not in store.envelopes:
        return SettleAnswer.DELETED
    if store.state(token.job_id) is State.CANCELLED:
        return SettleAnswer.CANCELLED
    return SettleAnswer.REAPED


def _settle_one(store: Store, settlement: Settlement, children: Children, now: datetime) -> SettleAnswer:
    (job_id, *_), outcome = settlement.token, settlement.outcome
    running = store.fenced(settlement.token, now)
    if running is None:
        return superseded_by(store, settlement.token)
    end = End(outcome=KIND_OF[type(outcome)], cause=cause_of(outcome), error=error_of(outcome))
    match outcome:
        case Held():
            end, target = put_aside(store, job_id, running, outcome, now)
        case Suspended(waits=waits):
            target = suspended(store, Suspending(job_id, running, children), waits, now)
        case _:
            target = _next(store, job_id, running, outcome, now)
    close_attempt(store, job_id, running, replace(end, step=settlement.step), now=now)
    store.place(job_id, target)
    if isinstance(outcome, Snoozed | Suspended):  # it has started, and no row of the ledger will say so
        store.envelopes[job_id] = replace(store.envelopes[job_id], start_by=None)
    if settlement.has_waits or settlement.forgets:
        _forget_waits(store, settlement, now)
    return SettleAnswer.SETTLED


def _forget_waits(store: Store, settlement: Settlement, now: datetime) -> None:
    job_id = settlement.token.job_id
    match settlement.outcome:
        case Completed():
            store.runs.waits.pop(job_id, None)
        case Cancelled():
            drop_waits(store, job_id, now)
        case Retried() | DeadLettered():
            for name in settlement.forgets:
                store.runs.forget(job_id, store.envelopes[job_id].run_id, name)
        case _:
            pass


def _next(store: Store, job_id: JobId, running: Running, outcome: _Plain, now: datetime) -> Token:
    """Give where an outcome leads. A failure goes behind the new work of its priority, an interruption before it."""
    counters = running.counters
    fresh, resumed = store.rank(job_id, LANE_NEW), store.rank(job_id, LANE_RESUMED)
    match outcome:
        case Completed(result=result, late=late):
            done = running.ended(State.DONE, counters.completed(), now)
            return replace(done, result=result, is_late=late)
        case DeadLettered(reason=reason):
            return running.ended(State.DEAD, counters.failed(), now, reason=reason)
        case Cancelled(reason=reason):
            return running.ended(State.CANCELLED, counters.uncounted(), now, reason=reason)
        case Retried(delay=delay):
            return Waiting(counters=counters.failed(), rank=fresh, due_at=now + delay, reason=Wait.RETRY)
        case Snoozed(delay=delay):
            return Waiting(counters=counters.uncounted(), rank=resumed, due_at=now + delay, reason=Wait.SNOOZE)
        case Interrupted(delay=delay):
            if delay is None:
                return Ready(counters=counters.interrupted(), rank=resumed, seq=store.next_seq(), since=now)
            return Waiting(counters=counters.interrupted(), rank=resumed, due_at=now + delay, reason=Wait.INTERRUPTED)
        case _:
            assert_never(outcome)
