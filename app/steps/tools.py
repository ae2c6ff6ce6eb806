"""What runs are carried out with: the store, threads and clocks of a worker, and the signal of one run.

Built by whoever runs bodies; used by everything in this folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ..domain.errors import DriverUnavailable
from ..domain.verdict import GONE, Reason
from ..drivers.runs import RunStore
from .values import Values

T = TypeVar("T")

_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0


class Signal(Protocol):
    """What a run is told with, as steps need it."""

    @property
    def first(self) -> Reason | None:
        """Give the first reason to stop."""
        ...

    def raise_if_aborted(self) -> None:
        """Raise `Aborted` once the run was told to stop."""
        ...

    def in_store(self) -> AbstractContextManager[None]:
        """Hold a cancellation back while a call to the store is under way."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What all runs of a worker share. `code_version` is the worker's own."""

    store: RunStore
    pool: Executor
    values: Values
    monotonic: Callable[[], float]
    code_version: str = ""


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
