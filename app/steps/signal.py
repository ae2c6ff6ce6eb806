"""What a run is told with, as its steps see it. The worker's own signal is one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from ..domain.verdict import Reason


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
