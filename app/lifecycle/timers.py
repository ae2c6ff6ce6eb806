"""Timers as a parameter: what a run's clocks are set with, so that whoever moves time moves them, too.

Production sets them on the running loop. A test kit has timers that go off when its clock is moved. Used by run
signals and by steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """One timer that has been set."""

    def cancel(self) -> None:
        """Let it never go off; one that has is left alone."""
        ...


class Timers(Protocol):
    """Something timers are set on, from the loop."""

    def call_later(self, seconds: float, step: Callable[..., object], *args: object) -> Timer:
        """Call `step` on the loop after so many seconds."""
        ...

    def within(self, seconds: float | None) -> asyncio.Timeout:
        """Give a block that is cut after so many seconds with `TimeoutError`; None: never."""
        ...


class LoopTimers:
    """The timers of the running loop."""

    def call_later(self, seconds: float, step: Callable[..., object], *args: object) -> Timer:
        """Set one on the running loop."""
        return asyncio.get_running_loop().call_later(seconds, step, *args)

    def within(self, seconds: float | None) -> asyncio.Timeout:
        """Bound a block."""
        return asyncio.timeout(seconds)


_: type[Timers] = LoopTimers
