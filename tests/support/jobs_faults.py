"""Jobs that do what a test tells them to: wait at gates, fail, snooze, take their worker down.

Each records its real executions in the ledger of its process, apart from what the store says. Loaded by workers that
tests start.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from app.jobs import JobContext, RetryPolicy, Snooze, Terminal, job
from tests.support.ledger import Ledger

QUICK = RetryPolicy(max_attempts=3, backoff=timedelta(milliseconds=20), factor=1.0, jitter="none")


@contextmanager
def effects(ctx: JobContext) -> Iterator[Ledger]:
    """Record that a body begins and, unless its process dies, that it ends."""
    ledger = Ledger.of_process()
    about: dict[str, Any] = {"job": ctx.id, "epoch": ctx.claim_no, "attempt": ctx.attempt, "name": ctx.name}
    ledger.record("effect", "invoke", **about)
    try:
        yield ledger
    except BaseException as exc:
        ledger.record("effect", "fail", error=type(exc).__name__, **about)
        raise
    ledger.record("effect", "ok", **about)


class Hold(BaseModel):
    """Wait at `gate`, only in the first `epochs` starts; `{epoch}` in it is the start. `heed`: stop when told to."""

    gate: str = ""
    epochs: int = 1_000
    heed: bool = True

    def gate_of(self, ctx: JobContext) -> str:
        """Give the gate of this start, nothing when it is not to wait."""
        return self.gate.format(epoch=ctx.claim_no) if ctx.claim_no <= self.epochs else ""


class Held(BaseModel):
    """Which start of the job this was."""

    claim_no: int
    attempt: int


def _told(ctx: JobContext, ledger: Ledger) -> None:
    ledger.record("told", job=ctx.id, epoch=ctx.claim_no, reason=str(ctx.signal.reason))


@job("faults.hold", retry=QUICK)
async def hold(ctx: JobContext, payload: Hold) -> Held:
    """Wait at a gate on the loop."""
    with effects(ctx) as ledger:
        if gate := payload.gate_of(ctx):
            while not ledger.is_open(gate):
                if ctx.signal.aborted and payload.heed:
                    _told(ctx, ledger)
                    ctx.signal.raise_if_aborted()
                await asyncio.sleep(0.005)
        if ctx.signal.aborted:
            _told(ctx, ledger)
        return Held(claim_no=ctx.claim_no, attempt=ctx.attempt)


@job("faults.hold_sync", retry=QUICK)
def hold_sync(ctx: JobContext, payload: Hold) -> Held:
    """Wait at a gate in a thread."""
    with effects(ctx) as ledger:
        if gate := payload.gate_of(ctx):
            ledger.pass_gate(gate, unless=lambda: payload.heed and ctx.signal.aborted)
        if ctx.signal.aborted:
            _told(ctx, ledger)
            if payload.heed:
                ctx.signal.raise_if_aborted()
        return Held(claim_no=ctx.claim_no, attempt=ctx.attempt)


async def _swallow(ctx: JobContext, payload: Hold) -> None:
    with effects(ctx) as ledger:
        gate = payload.gate_of(ctx)
        while gate and not ledger.is_open(gate):
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                ledger.record("swallowed", job=ctx.id, epoch=ctx.claim_no)


@job("faults.deaf", abort="signal", retry=QUICK)
async def deaf(ctx: JobContext, payload: Hold) -> None:
    """Ask not to be cancelled, and look at no signal until a gate opens."""
    await _swallow(ctx, payload)


@job("faults.swallow", retry=QUICK)
async def swallow(ctx: JobContext, payload: Hold) -> None:
    """Be cancelled, swallow it, and work on until a gate opens."""
    await _swallow(ctx, payload)


@job("faults.block", retry=QUICK)
async def block(ctx: JobContext, payload: Hold) -> None:
    """Hold up the loop until a gate opens."""
    with effects(ctx) as ledger:
        if gate := payload.gate_of(ctx):
            ledger.pass_gate(gate, unless=lambda: False)


@job("faults.poison", retry=RetryPolicy(max_attempts=5, max_crashes=3))
async def poison(ctx: JobContext) -> None:
    """Take the worker down, each time."""
    with effects(ctx):
        os.kill(os.getpid(), signal.SIGKILL)


@job("faults.fail", retry=QUICK)
async def fail(ctx: JobContext, reason: str = "as ordered", times: int = 1_000, terminal: bool = False) -> int:
    """Fail the first `times` times."""
    with effects(ctx):
        if ctx.attempt <= times:
            raise Terminal(reason) if terminal else ValueError(reason)
        return ctx.attempt


@job(
    "faults.fail_slower",
    retry=RetryPolicy(max_attempts=3, backoff=timedelta(milliseconds=200), factor=4.0, jitter="none"),
)
async def fail_slower(ctx: JobContext, reason: str) -> None:
    """Fail each time, with growing waits between."""
    with effects(ctx):
        raise ValueError(reason)


@job("faults.snooze", retry=QUICK)
async def snooze(ctx: JobContext, times: int = 1, seconds: float = 0.05) -> int:
    """Give the worker back the first `times` times."""
    with effects(ctx):
        if ctx.claim_no <= times:
            raise Snooze(timedelta(seconds=seconds))
        return ctx.claim_no


@job("faults.take", retry=QUICK)
async def take(ctx: JobContext, seconds: float = 0.1) -> None:
    """Take a fixed time."""
    with effects(ctx):
        await asyncio.sleep(seconds)
