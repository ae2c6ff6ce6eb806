"""How a process leaves: the one owner of SIGTERM and SIGINT, and the phases accept, in-flight, close.

Signals are taken with `signal.signal`, so that the start of the drain is stamped and the watchdog armed even when the
loop is blocked; everyone else asks for the same drain with `request`. Roles do the work; this orders them and decides
the exit code. Built by the composition root, one a process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import IntEnum
from types import FrameType
from typing import Any

from ..observability.logging import flush_log
from ..observability.telemetry import Telemetry
from .drain import DrainNotice
from .role import Role
from .status import DrainPhase, DrainStatus
from .tasks import start_in, start_task
from .watchdog import Watchdog, briefly
from .watching import status_of, wall_clock

_WATCHDOG_MARGIN_SECONDS = 2.0
_THREADS_SECONDS = 1.0  # for idle threads to notice that their pool was shut down
_SECOND_SIGINT_SECONDS = 1.0  # sooner is the same Ctrl-C, sent to a whole process group and by a wrapper again


class ExitCode(IntEnum):
    """How a process that ran roles ends."""

    CLEAN = 0
    ABANDONED = 70
    LOOP_DIED = 75


class Shutdown:
    """Leaves in order when told to. `drain_seconds` is the whole budget, from the first signal to the end.

    It drives the roles handed to `serve`; a role that was built with it as its `hooks` is only told, and stopped by
    whoever started it.
    """

    def __init__(
        self,
        *,
        drain_seconds: float,
        telemetry: Telemetry,
        end: Callable[[int], object] = os._exit,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = wall_clock,
    ) -> None:
        self._notices: dict[str, tuple[DrainNotice, datetime]] = {}  # at most one
        self._seconds = drain_seconds
        self._telemetry = telemetry
        self._end = end
        self._monotonic = monotonic
        self._wall = wall
        self._first_sigint: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._requested = asyncio.Event()
        self._roles: tuple[Role, ...] = ()
        self._hooked: tuple[Role, ...] = ()
        self._phase: DrainPhase | None = None
        self._has_left = False
        self._watchdog: Watchdog | None = None
        self._is_late = False

    @property
    def notice(self) -> DrainNotice | None:
        """Give what the process was told, None while it stays. Any thread."""
        told = self._notices.get("first")
        return None if told is None else told[0]

    @property
    def is_draining(self) -> bool:
        """Say whether the process has been told to leave; readable from any thread."""
        return self.notice is not None

    # --- being told ---------------------------------------------------------------------------------------------------

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Own SIGTERM and SIGINT, with the watchdog behind them, while the context is open. Main thread only."""
        self._watchdog = Watchdog(last_words=self._last_words, end=self._end, monotonic=self._monotonic)
        self._watchdog.start()
        if self.notice is not None:
            self._arm(self.notice)
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._watchdog.stop()
            self._watchdog = None

    def request(self, cause: str) -> DrainNotice:
        """Ask for the drain, or join the one under way. Safe from any thread and in a signal handler."""
        asked = DrainNotice(cause=cause, started=self._monotonic(), seconds=self._seconds)
        # Of two threads at once one is first; a lock could be held by the very code that a signal interrupts.
        notice, _ = self._notices.setdefault("first", (asked, self._wall()))
        if notice is asked:
            self._arm(notice)
            for role in (*self._roles, *self._hooked):
                role.warn(notice)
            self._hand_over()
        return notice

    def _arm(self, notice: DrainNotice) -> None:
        if self._watchdog is not None:
            at, why = notice.deadline + _WATCHDOG_MARGIN_SECONDS, "the drain did not end by itself"
            self._watchdog.arm(at, code=ExitCode.ABANDONED, why=why)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        now = self._monotonic()
        if number == signal.SIGINT:
            if self._first_sigint is None:
                self._first_sigint = now
            elif now - self._first_sigint >= _SECOND_SIGINT_SECONDS and self._watchdog is not None:
                self._watchdog.end_now(code=ExitCode.ABANDONED, why="interrupted a second time")
                return
        self.request(signal.Signals(number).name)

    def _hand_over(self) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            return  # told before the roles were there: `serve` looks
        loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._requested.set()
        for role in self._hooked:
            role.drain(self.request("told"))

    # --- roles of somebody else's -------------------------------------------------------------------------------------

    def hook(self, role: Role) -> None:
        """Drain a role that its owner started; once, however often it is hooked. On the role's loop."""
        self._loop = asyncio.get_running_loop()
        if role not in self._hooked:
            self._hooked = (*self._hooked, role)

    def unhook(self, role: Role) -> None:
        """Drain it no more; one that has left in a drain is still counted in the drain's status."""
        if not self.is_draining:
            self._hooked = tuple(other for other in self._hooked if other is not role)

    async def wait_requested(self) -> DrainNotice:
        """Wait until the process is told to leave; a program that starts its roles itself then stops them."""
        self._listen()
        await self._requested.wait()
        return self.request("told")

    # --- being watched ------------------------------------------------------------------------------------------------

    def status(self) -> DrainStatus:
        """Show the drain as it is now. Any thread, also while the loop is blocked."""
        notice, since = self._notices.get("first") or (None, None)
        return status_of(
            (*self._roles, *self._hooked),
            notice=notice,
            since=since,
            phase=self._phase,
            has_left=self._has_left,
            now=self._monotonic(),
        )

    # --- leaving ------------------------------------------------------------------------------------------------------

    async def unless_requested(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Do something that a drain may cut, like waiting for a database; False when it was cut (and cancelled)."""
        self._listen()
        task = start_task(work, name="outlast.startup")
        told = start_task(self._told(), name="outlast.told")
        try:
            await asyncio.wait({task, told}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await task
                return True
            return False
        finally:
            for one in (task, told):
                one.cancel()
            await asyncio.wait({task, told})

    async def serve(self, roles: Sequence[Role]) -> int:
        """Start the roles in order, wait until told to leave or until one fails, drain them all, give the exit code.

        Raises what the start of a role raises, after stopping those that had started. Roles close in the order given,
        also when this is cancelled.
        """
        self._roles = tuple(roles)
        self._listen()
        failures: list[BaseException] = []
        cancelled: asyncio.CancelledError | None = None
        if await self._start_all():
            try:
                failures += await self._until_told()
            except asyncio.CancelledError as error:
                # Whoever it was: the roles still hold work that has to go back in order.
                cancelled = error
                failures.append(error)
                self.request("cancelled")
                self._telemetry.role_failed("process", error)
        code = await self._drain(failures)
        self._has_left = True
        self._telemetry.drain_ended(exit_code=code, seconds=self._monotonic() - self.request("over").started)
        if cancelled is not None:
            raise cancelled
        return code

    def _listen(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self.notice is not None:
            self._requested.set()

    async def _told(self) -> None:
        await self._requested.wait()

    async def _start_all(self) -> bool:
        for role in self._roles:
            try:
                if not await self.unless_requested(role.start()):
                    return False
            except BaseException:
                await self._drain([])
                raise
        return True

    async def _until_told(self) -> list[BaseException]:
        """Wait for a request or the first failure; a role that fails asks for the drain itself."""
        watches = [start_task(self._watch(role), name=f"outlast.watch.{role.name}") for role in self._roles]
        try:
            await self._requested.wait()
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
        return [failure for watch in watches if not watch.cancelled() and (failure := watch.result()) is not None]

    async def _watch(self, role: Role) -> BaseException | None:
        failure = await role.wait_failed()
        if failure is not None:
            self._telemetry.role_failed(role.name, failure)
        self.request(f"the {role.name} ended")
        return failure

    async def _drain(self, failures: list[BaseException]) -> int:
        notice = self.request("start failed")
        self._telemetry.drain_started(cause=notice.cause, seconds=notice.seconds)
        self._enter(DrainPhase.ACCEPT)
        for role in self._roles:
            role.drain(notice)
        self._enter(DrainPhase.INFLIGHT)
        async with asyncio.TaskGroup() as group:
            for role in self._roles:
                start_in(group, self._until_idle(role, notice), name=f"outlast.idle.{role.name}")
        self._enter(DrainPhase.CLOSE)
        for role in self._roles:
            failures += await self._close(role, notice, failures)
        if failures:
            return ExitCode.LOOP_DIED
        is_abandoned = self._is_late or any(role.abandoned for role in self._roles)
        return ExitCode.ABANDONED if is_abandoned else ExitCode.CLEAN

    async def _until_idle(self, role: Role, notice: DrainNotice) -> None:
        """Wait for a role's work in flight, or for the deadline: one whose start hangs has no other bound."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(notice.deadline - self._monotonic(), 0.0)):
                await role.wait_idle()

    def _enter(self, phase: DrainPhase) -> None:
        self._phase = phase
        self._telemetry.drain_phase(phase.value)

    async def _close(self, role: Role, notice: DrainNotice, known: list[BaseException]) -> list[BaseException]:
        """Wait for a role's end; gives its failure unless that is known already."""
        error: BaseException | None = None
        try:
            async with asyncio.timeout(max(notice.deadline - self._monotonic(), 0.0)):
                await role.stop()
            error = role.failure  # of one that was over before
        except TimeoutError:
            self._is_late = True
        except Exception as exc:  # noqa: BLE001 - the other roles still have to close
            error = exc
        if error is None or error in known:
            return []
        self._telemetry.role_failed(role.name, error)
        return [error]

    # --- ending -------------------------------------------------------------------------------------------------------

    def finish(self, code: int) -> None:
        """End the process here when its teardown would wait for something that was given up; else return.

        A body that swallows its cancellation, or a thread that never returns, keeps the loop and the interpreter open.
        Threads of pools that were shut down end by themselves in a moment.
        """
        if code == ExitCode.ABANDONED or not _threads_end(within=_THREADS_SECONDS):
            briefly(flush_log)
            self._end(code)

    def loop_left(self, by: str, at: str) -> None:
        """Say that something made the loop's run end, which then goes on."""
        self._telemetry.loop_left(by, at=at)

    def _last_words(self, code: int, why: str) -> None:
        held = (run for role in (*self._roles, *self._hooked) for run in role.held())
        self._telemetry.process_ended(exit_code=code, why=why, abandoned=[run.name for run in held])
        flush_log()


def _threads_end(*, within: float) -> bool:
    """Wait for the threads the interpreter would wait for at its end; False when one of them does not end."""
    until = time.monotonic() + within
    others = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    for other in others:
        other.join(max(until - time.monotonic(), 0.0))
    return not any(other.is_alive() for other in others)
