"""What runs are carried out with: the store, threads and clocks of a worker, and the signal of one run.

Built by whoever runs bodies; used by everything in this folder.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from ..domain.verdict import Reason
from ..drivers.runs import RunStore
from .values import Values


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
