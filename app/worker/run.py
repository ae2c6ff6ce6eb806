"""One claimed job to exactly one outcome, settled: the data path of the worker, from claim to the store's answer.

Total: whatever a body does, `carry` returns; the only thing it can leave behind is a body that nothing ends, and that
keeps its place. Called by the claim loop, as a task of the worker's group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..domain.errors import Internal, JobTimeout, ResultInvalid
from ..domain.outcome import (
    KIND_OF,
    DeadLettered,
    ErrorInfo,
    Interrupted,
    Outcome,
    OutcomeKind,
    Retried,
    SettleAnswer,
    Suspended,
)
from ..domain.state import DeadReason
from ..domain.verdict import Budget, Ended, Raised, verdict
from ..jobs.client import Client, use_client
from ..jobs.context import context_of
from ..observability.telemetry import Telemetry
from .error_info import error_info
from .execute import Call, begin, ended_of
from .options import WorkerOptions
from .roster import Run, body_name
from .settler import Settler


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every run works with. `given_up` is done once a drain's time is over; `on_due` hears when a wait ends."""

    options: WorkerOptions
    telemetry: Telemetry
    settler: Settler
    pool: Executor
    roll: Callable[[], float]
    monotonic: Callable[[], float]
    client: Client | None
    given_up: asyncio.Future[None]
    on_due: Callable[[timedelta], None]


_TOO_LATE = ErrorInfo(
    type=JobTimeout.__name__, message="the job's deadline passed before it began", code=JobTimeout.code
)


async def carry(run: Run, bench: Bench) -> None:
    """Run one claimed job and settle what becomes of it; returns when body and attempt have ended, or are given up.

    A run told to stop before it began returns unbegun: its claim is handed back by the caller. One whose deadline has
    passed by then is closed without a beginning.
    """
    if not run.is_held:
        run.is_settled = True
        _said_superseded(run, bench, run.superseded_by)
        return
    if run.signal.aborted:
        return
    if (left := _left(run, bench)) is not None and left <= timedelta():
        await _store(run, bench, DeadLettered(error=_TOO_LATE, reason=DeadReason.DEADLINE))
        return
    ended = await _ended(run, bench)
    if ended is None:
        return
    closed = await _close(run, bench, ended)
    if run.body is not None and not run.body.done():
        bench.telemetry.attempt_abandoned(run.job, closed, _seconds(run, bench), reason=_word(run))
        await _first(run.body, bench.given_up)


async def _ended(run: Run, bench: Bench) -> Ended | None:
    """Call the body and wait for its end, or for the instant its attempt is closed over it; None: given up."""
    try:
        body = _begin(run, bench)
    except Exception as error:  # noqa: BLE001 - metadata or a payload nobody can read ends this attempt only
        return Raised(error=error_info(error), is_terminal=False)
    await _first(body, run.signal.closing, bench.given_up)
    if body.done():
        run.signal.disarm()
        return ended_of(body)
    if run.signal.closing.done():
        return Raised(error=_still_running(run))
    return None


def _begin(run: Run, bench: Bench) -> asyncio.Future[Ended]:
    job, policy = run.job, run.handle.policy
    run.started_at = bench.monotonic()
    run.signal.arm(timeout=_timeout(run), deadline_in=_left(run, bench))
    call = Call(
        handle=run.handle,
        payload=job.payload,
        context=context_of(job, signal=run.signal),
        result_max_bytes=bench.options.result_max_bytes,
        now=_store_clock(run, bench.monotonic),
    )
    bench.telemetry.attempt_started(job)
    with nullcontext() if bench.client is None else use_client(bench.client.guarded(run.signal.in_store)):
        run.body = begin(call, pool=bench.pool, name=body_name(job))
    if policy.abort == "cancel" and not run.handle.is_sync:
        run.signal.on_cancel(run.body.cancel)
    return run.body


async def _first(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def _close(run: Run, bench: Bench, ended: Ended) -> str:
    """Decide what the attempt becomes and have it stored; gives the word for how it was closed."""
    budget, backoff = _budget(run), _backoff(run, bench)
    outcome = verdict(is_held=run.is_held, first=run.signal.reason, ended=ended, budget=budget, backoff=backoff)
    if outcome is None:
        run.is_settled = True
        return _said_superseded(run, bench, run.superseded_by)
    return await _store(run, bench, outcome)


async def _store(run: Run, bench: Bench, outcome: Outcome) -> str:
    fallback = _fallback(_budget(run), _backoff(run, bench))
    stored, answer = await bench.settler.settle(run, outcome, fallback=fallback)
    run.is_settled = True
    if answer is SettleAnswer.SETTLED:
        bench.telemetry.attempt_settled(run.job, stored, _seconds(run, bench), is_blocking=run.is_blocking)
        _announce(stored, bench)
        return KIND_OF[type(stored)].value
    if answer is not None:
        return _said_superseded(run, bench, answer)
    return OutcomeKind.LEASE_LOST.value


def _said_superseded(run: Run, bench: Bench, by: SettleAnswer | None) -> str:
    seconds = None if run.started_at is None else _seconds(run, bench)
    if by in {SettleAnswer.CANCELLED, SettleAnswer.DELETED}:
        bench.telemetry.attempt_superseded(run.job, by, seconds)
        return by.value
    bench.telemetry.lease_lost(run.job, seconds)
    return OutcomeKind.LEASE_LOST.value


def _announce(outcome: Outcome, bench: Bench) -> None:
    """Say when a job that waits is due, so that this worker looks at that instant rather than by chance."""
    if isinstance(outcome, Retried | Suspended | Interrupted) and outcome.delay is not None:
        bench.on_due(outcome.delay)


def _fallback(budget: Budget, backoff: timedelta) -> Outcome:
    """Give what is stored when the store refuses the outcome itself: an attempt never stays running for its value."""
    error = ErrorInfo(
        type=ResultInvalid.__name__, message="the store refused the outcome of this attempt", code=ResultInvalid.code
    )
    if budget.is_spent:
        return DeadLettered(error=error, reason=DeadReason.ATTEMPTS_EXHAUSTED)
    return Retried(error=error, delay=backoff)


def _still_running(run: Run) -> ErrorInfo:
    return ErrorInfo(
        type=JobTimeout.__name__ if run.is_held else Internal.__name__,
        message="the attempt was closed while its body still ran",
        code=JobTimeout.code if run.is_held else Internal.code,
    )


def _budget(run: Run) -> Budget:
    return Budget(attempt=run.job.counters.attempt, max_attempts=run.job.max_attempts, timeout=_timeout(run))


def _backoff(run: Run, bench: Bench) -> timedelta:
    return run.handle.policy.retry.delay_after(run.job.counters.attempt, bench.roll())


def _timeout(run: Run) -> timedelta | None:
    """Give the lower of what the job type allows and what the request asked for."""
    limits: list[Any] = [limit for limit in (run.handle.policy.timeout, run.job.timeout) if limit is not None]
    return min(limits, default=None)


def _left(run: Run, bench: Bench) -> timedelta | None:
    """Give what is left until the job's deadline, reckoned from the claim on."""
    if run.job.deadline_in is None:
        return None
    return run.job.deadline_in - timedelta(seconds=bench.monotonic() - run.claimed_at)


def _store_clock(run: Run, monotonic: Callable[[], float]) -> Callable[[], datetime]:
    """Reckon the store's time from the claim on: this machine's own clock may be wrong."""
    return lambda: run.job.claimed_at + timedelta(seconds=monotonic() - run.claimed_at)


def _seconds(run: Run, bench: Bench) -> float:
    return 0.0 if run.started_at is None else bench.monotonic() - run.started_at


def _word(run: Run) -> str:
    return "" if run.signal.reason is None else run.signal.reason.value
