"""The run signal as a body reads it: whether it was told to stop, and why.

The worker writes the signal; the first reason wins and never changes.
"""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, Protocol, overload

from ..domain.verdict import Reason


class RunSignal(Protocol):
    """What `ctx.signal` is. Every member but the awaited `wait()` may be used from any thread."""

    @property
    def aborted(self) -> bool:
        """Say whether the run was told to stop."""
        ...

    @property
    def reason(self) -> Reason | None:
        """Give the first reason, None while the run may go on."""
        ...

    def raise_if_aborted(self) -> None:
        """Raise `Aborted` once the run was told to stop; put it between the pieces of long work."""
        ...

    @overload
    def wait(self) -> Coroutine[Any, Any, Reason]: ...

    @overload
    def wait(self, timeout: timedelta) -> bool: ...

    def wait(self, timeout: timedelta | None = None) -> Coroutine[Any, Any, Reason] | bool:
        """Wait until told to stop: `await signal.wait()` in an async body gives the reason.

        In a sync body `signal.wait(timeout)` blocks the thread for at most `timeout` and says whether the run was told
        to stop: a sleep that ends early. There `signal.wait()` blocks for as long as it takes and gives the reason
        itself, although its declared type is that of an async body's.
        """
        ...
