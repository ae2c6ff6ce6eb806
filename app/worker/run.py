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
    DeadLettered,
    ErrorInfo,
    Interrupted,
    Outcome,
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


async def carry(run: Run, bench: Bench) -> None:
    """Run one claimed job and settle what becomes of it; returns when body and attempt have ended, or are given up.

    A run told to stop before it began returns unbegun: its claim is handed back by the caller.
    """
    if not run.is_held:
        run.is_settled = True
        _said_superseded(run, bench, run.superseded_by)
        return
    if run.signal.aborted:
        return
    ended = await _ended(run, bench)
    if ended is None:
        return
    await _close(run, bench, ended)
    if run.body is not None and not run.body.done():
        bench.telemetry.attempt_abandoned(run.job, reason=_word(run))
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
    run.signal.arm(timeout=_timeout(run), deadline_in=_left(job.deadline_in, run))
    call = Call(
        handle=run.handle,
        payload=job.payload,
        context=context_of(job, signal=run.signal),
        result_max_bytes=bench.options.result_max_bytes,
        now=_store_clock(run, bench.monotonic),
    )
    bench.telemetry.attempt_started(job)
    with nullcontext() if bench.client is None else use_client(bench.client):
        run.body = begin(call, pool=bench.pool, name=body_name(job))
    if policy.abort == "cancel" and not run.handle.is_sync:
        run.signal.on_cancel(run.body.cancel)
    return run.body


async def _first(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def _close(run: Run, bench: Bench, ended: Ended) -> None:
    """Decide what the attempt becomes and have it stored."""
    budget = _budget(run)
    backoff = run.handle.policy.retry.delay_after(budget.attempt, bench.roll())
    outcome = verdict(is_held=run.is_held, first=run.signal.reason, ended=ended, budget=budget, backoff=backoff)
    if outcome is None:
        run.is_settled = True
        _said_superseded(run, bench, run.superseded_by)
        return
    stored, answer = await bench.settler.settle(run, outcome, fallback=_fallback(budget, backoff))
    run.is_settled = True
    if answer is SettleAnswer.SETTLED:
        bench.telemetry.attempt_settled(run.job, stored, _seconds(run, bench), is_blocking=run.is_blocking)
        _announce(stored, bench)
    elif answer is not None:
        _said_superseded(run, bench, answer)


def _said_superseded(run: Run, bench: Bench, by: SettleAnswer | None) -> None:
    if by in {SettleAnswer.CANCELLED, SettleAnswer.DELETED}:
        bench.telemetry.attempt_superseded(run.job, by)
    else:
        bench.telemetry.lease_lost(run.job)


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


def _timeout(run: Run) -> timedelta | None:
    """Give the lower of what the job type allows and what the request asked for."""
    limits: list[Any] = [limit for limit in (run.handle.policy.timeout, run.job.timeout) if limit is not None]
    return min(limits, default=None)


def _left(deadline_in: timedelta | None, run: Run) -> timedelta | None:
    if deadline_in is None or run.started_at is None:
        return None
    return deadline_in - timedelta(seconds=run.started_at - run.claimed_at)


def _store_clock(run: Run, monotonic: Callable[[], float]) -> Callable[[], datetime]:
    """Reckon the store's time from the claim on: this machine's own clock may be wrong."""
    return lambda: run.job.claimed_at + timedelta(seconds=monotonic() - run.claimed_at)


def _seconds(run: Run, bench: Bench) -> float:
    return 0.0 if run.started_at is None else bench.monotonic() - run.started_at


def _word(run: Run) -> str:
    return "" if run.signal.reason is None else run.signal.reason.value
