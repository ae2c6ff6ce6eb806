"""Why and when a run has to end: one signal that timeout, deadline, cancel, lease, drain and caller all fire.

The first reason wins and never changes; later ones only bring the end forward. It is told from any thread and read
from the body's, on the loop or in a thread of the pool. The reading face is `jobs.signal`; the worker drives the rest.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, cast, overload

from ..domain.errors import Aborted
from ..domain.verdict import Reason
from ..lifecycle.timers import Timer, Timers

_SAID = {
    Reason.TIMEOUT: "its timeout has passed",
    Reason.DEADLINE: "the job's deadline has passed",
    Reason.CANCEL: "the job was cancelled",
    Reason.LEASE_LOST: "the worker's lease is lost, nothing it does is stored any more",
    Reason.DRAIN: "the worker is draining",
    Reason.CALLER: "the caller that runs the worker asked for it",
}


class _InStore:
    """The time of one call to the store; a generator's context would cost more than the rest of a small step."""

    __slots__ = ("_signal",)

    def __init__(self, signal: RunSignal) -> None:
        self._signal = signal

    def __enter__(self) -> None:
        self._signal._in_store += 1  # noqa: SLF001 - its own

    def __exit__(self, *_: object) -> None:
        self._signal.leave_store()


class RunSignal:
    """The signal of one run. `may_cancel`: the body may be cancelled once its grace is over; `timers` run its clock."""

    __slots__ = (
        "_call_later",
        "_cancel",
        "_cancel_timer",
        "_closing",
        "_due",
        "_fired",
        "_first",
        "_grace",
        "_heard",
        "_in_store",
        "_is_cancel_due",
        "_is_closing",
        "_lock",
        "_loop",
        "_monotonic",
        "_on_close",
        "_said",
        "_thread",
        "_timers",
        "cancel_at",
        "is_read",
        "may_cancel",
    )

    def __init__(
        self,
        *,
        grace_seconds: float,
        may_cancel: bool,
        monotonic: Callable[[], float],
        timers: Timers | None = None,
    ) -> None:
        self.may_cancel = may_cancel
        self.cancel_at: float | None = None
        self.is_read = False  # whether the body has seen that it fired
        self._grace = grace_seconds
        self._monotonic = monotonic
        self._loop = asyncio.get_running_loop()
        self._call_later: Callable[..., Timer] = self._loop.call_later if timers is None else timers.call_later
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._first: Reason | None = None
        self._said = ""
        # Made by the first that waits: most runs end without anybody waiting for their signal.
        self._fired: threading.Event | None = None
        self._heard: asyncio.Event | None = None
        self._due: tuple[tuple[float, Reason], ...] = ()
        self._timers: tuple[Timer, ...] = ()
        self._cancel: Callable[[], object] | None = None
        self._cancel_timer: Timer | None = None
        self._in_store = 0
        self._is_cancel_due = False
        self._on_close: Callable[[], object] | None = None
        self._is_closing = False
        self._closing: asyncio.Future[None] | None = None

    # --- read by the body -----------------------------------------------------------------------------------------

    @property
    def aborted(self) -> bool:
        """Say whether the run has been told to stop."""
        self._look()
        if self._first is None:
            return False
        self.is_read = True
        return True

    @property
    def reason(self) -> Reason | None:
        """Give the first reason, None while the run may go on."""
        if self.first is not None:
            self.is_read = True
        return self._first

    def raise_if_aborted(self) -> None:
        """Raise `Aborted` once the run has been told to stop."""
        if self._first is None and not self._due:
            return
        if (reason := self.reason) is not None:
            raise Aborted(
                f"the run was told to stop: {self._said or _SAID[reason]}",
                fix="end soon; work that is not done is run again unless the job was cancelled",
                reason=reason.value,
            )

    @overload
    def wait(self) -> Coroutine[Any, Any, Reason]: ...

    @overload
    def wait(self, timeout: timedelta) -> bool: ...

    def wait(self, timeout: timedelta | None = None) -> Coroutine[Any, Any, Reason] | bool:
        """Wait until told to stop: awaited without a timeout on the loop, blocking in every other thread.

        With a timeout it gives whether the run was told in time, else the reason.
        """
        if timeout is not None:
            return self._wait_in_thread(timeout.total_seconds())
        if threading.get_ident() == self._thread:
            return self._wait_on_loop()
        self._wait_in_thread(math.inf)
        # A blocked thread has its answer now; the declared type is that of the call on the loop, which is awaited.
        return cast("Coroutine[Any, Any, Reason]", self._told())

    # --- driven by the worker -------------------------------------------------------------------------------------

    @property
    def first(self) -> Reason | None:
        """Give the first reason as the worker reads it, which is not the body's having seen it."""
        self._look()
        return self._first

    def arm(self, *, timeout: timedelta | None, deadline_in: timedelta | None) -> None:
        """Start the clocks of the attempt."""
        for after, reason in ((timeout, Reason.TIMEOUT), (deadline_in, Reason.DEADLINE)):
            if after is not None:
                seconds = max(after.total_seconds(), 0.0)
                self._due += ((self._monotonic() + seconds, reason),)
                self._timers += (self._call_later(seconds, self.fire, reason),)

    def fire(self, reason: Reason, *, cancel_at: float | None = None, said: str = "") -> None:
        """Tell the run to stop. Without `cancel_at` (monotonic) the body has its grace from now. Any thread."""
        at = self._monotonic() + self._grace if cancel_at is None else cancel_at
        with self._lock:
            if self._first is None:
                self._first, self._said = reason, said
                if self._fired is not None:
                    self._fired.set()
            elif self.cancel_at is not None and self.cancel_at <= at:
                return
            self.cancel_at = at
        if threading.get_ident() == self._thread:
            self._tighten()
        else:
            with suppress(RuntimeError):  # the loop has closed: nobody is left to tell
                self._loop.call_soon_threadsafe(self._tighten)

    def on_cancel(self, cancel: Callable[[], object]) -> None:
        """Name what is called at the cancel instant; at once when that has passed."""
        self._cancel = cancel
        if self._is_cancel_due:
            self._do_cancel()

    @property
    def closing(self) -> asyncio.Future[None]:
        """Give what is done when the attempt is to be closed although the body still runs.

        Never by a drain, which gives up as one. Made by the first that asks.
        """
        if self._closing is None:
            self._closing = self._loop.create_future()
            if self._is_closing:
                self._closing.set_result(None)
        return self._closing

    def on_close(self, close: Callable[[], object]) -> None:
        """Name what is called, soon after, when the attempt is to be closed although the body still runs."""
        self._on_close = close
        if self._is_closing:
            self._loop.call_soon(close)

    def in_store(self) -> _InStore:
        """Hold a cancellation back while a call to the store is under way: half-known writes are worse than a wait."""
        return _InStore(self)

    def leave_store(self) -> None:
        """End what `in_store` holds back for; a cancellation that came meanwhile goes through with the last end."""
        self._in_store -= 1
        if self._is_cancel_due:
            self._do_cancel()

    def disarm(self) -> None:
        """Stop all clocks: the body has ended."""
        for timer in self._timers:
            timer.cancel()
        if self._cancel_timer is not None:
            self._cancel_timer.cancel()
        self._due = ()
        self._cancel = None
        self._on_close = None

    # --- inside ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Fire what is due: a body that blocks the loop sees its timeout all the same."""
        if self._first is None and self._due:
            now = self._monotonic()
            for at, reason in sorted(self._due):
                if at <= now:
                    self.fire(reason)
                    return

    async def _wait_on_loop(self) -> Reason:
        if self._first is None:
            if self._heard is None:
                self._heard = asyncio.Event()
            await self._heard.wait()
        return self._told()

    def _told(self) -> Reason:
        reason = self._first
        if reason is None:
            raise AssertionError("heard before fired")
        self.is_read = True
        return reason

    def _wait_in_thread(self, seconds: float) -> bool:
        with self._lock:
            if self._fired is None:
                self._fired = threading.Event()
            fired = self._fired
            if self._first is not None:
                fired.set()
        until = self._monotonic() + seconds
        while not self.aborted:
            now = self._monotonic()
            if now >= until:
                return False
            left = min([until, *(at for at, _ in self._due)]) - now
            fired.wait(min(left, threading.TIMEOUT_MAX))
        return True

    def _tighten(self) -> None:
        """Let the loop know: wake who waits, and move the cancel timer forward."""
        if self._heard is not None:
            self._heard.set()
        if self._is_cancel_due or self.cancel_at is None:
            return
        if self._cancel_timer is not None:
            self._cancel_timer.cancel()
        left = max(self.cancel_at - self._monotonic(), 0.0)
        self._cancel_timer = self._call_later(left, self._cancel_now)

    def _cancel_now(self) -> None:
        self._is_cancel_due = True
        self._do_cancel()
        if self._first is not Reason.DRAIN:
            # A body that is cancelled gets as long again to unwind; one that is only told has had its time.
            self._cancel_timer = self._call_later(self._grace if self.may_cancel else 0.0, self._close)

    def _do_cancel(self) -> None:
        if self.may_cancel and self._in_store == 0 and self._cancel is not None:
            cancel, self._cancel = self._cancel, None
            cancel()

    def _close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if self._closing is not None:
            self._closing.set_result(None)
        if self._on_close is not None:
            self._loop.call_soon(self._on_close)
