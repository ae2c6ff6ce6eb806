"""What a run is told with, as its steps see it, and what they have made of it. The worker's own signal is one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from ..domain.errors import Aborted
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


class Stop:
    """Whether a step call of an attempt has ended since the run was told to stop. `error` is what the first raised.

    It stands, whatever the body makes of it: a body that could not do what it had to has no result to give.
    """

    __slots__ = ("_signal", "error")

    def __init__(self, signal: Signal) -> None:
        self._signal = signal
        self.error: BaseException | None = None

    def raise_if_told(self) -> None:
        """Raise `Aborted` once the run was told to stop, and note it."""
        try:
            self._signal.raise_if_aborted()
        except Aborted as error:
            self.note(error)
            raise

    def note(self, error: BaseException) -> None:
        """Note what a step call raises, if that is the run's being told to stop, alone or in a group."""
        if self.error is None and self._signal.first is not None and _is_abort(error):
            self.error = error


def _is_abort(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(Aborted) is not None
    return isinstance(error, Aborted)
