"""What runs are carried out with: the store, threads and clocks of a worker.

Built by whoever runs bodies; used by everything in this folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

from ..domain.errors import DriverUnavailable, RequestInvalid
from ..domain.job import ClaimedJob
from ..domain.step import StepKind
from ..domain.verdict import GONE
from ..drivers.runs import RunStore
from ..lifecycle.timers import LoopTimers, Timers
from .points import AtPoint
from .signal import Signal
from .values import Values

T = TypeVar("T")

_UNTRACED = nullcontext()
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What all runs of a worker share.

    `code_version` is the worker's own; `at` is called at the points of attempts; inside `span` of name and kind a step
    is carried out.
    """

    store: RunStore
    pool: Executor
    values: Values
    monotonic: Callable[[], float]
    code_version: str = ""
    timers: Timers = field(default_factory=LoopTimers)
    at: AtPoint | None = None
    span: Callable[[str, str], AbstractContextManager[None]] | None = None

    def traced(self, name: str, kind: StepKind) -> AbstractContextManager[None]:
        """Give what a step is carried out in."""
        return _UNTRACED if self.span is None else self.span(name, kind.value)


async def while_held(call: Callable[[], Awaitable[T]], signal: Signal) -> T:
    """Make a call to the store, again while it is unavailable and the run's claim may be held.

    What a step has done must not be lost to an outage that the lease outlives. The call must be harmless to repeat.

    Raises:
        DriverUnavailable: the claim is known to be gone. Anything else at once.
    """
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            with signal.in_store():
                return await call()
        except DriverUnavailable:
            if signal.first in GONE:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


def run_over(job: ClaimedJob) -> RequestInvalid:
    """Give the error of a step that is asked for once the body has ended."""
    return RequestInvalid(
        f"job {job.token.job_id} has ended, it has no steps any more", fix="await what the body starts"
    )
