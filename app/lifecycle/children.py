"""Processes started and kept by this one: told once, restarted when they crash, and never left behind.

Each is started afresh, never forked: threads and loops do not survive a fork. A child that crashed comes again after a
pause that grows; one that left by itself in order, or that could not start at all, does not. Run by `parent`, in the
main thread; where the children are may be read from any other.
"""

from __future__ import annotations

import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..observability.telemetry import Telemetry
from .lifeline import ParentEnd
from .shutdown import Shutdown

_LOOK_SECONDS = 0.1
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_STEADY_SECONDS = 60.0  # one that ran so long starts its pauses anew
_KILLED = 128
# Settings, database, schema: what a restart does not mend. Whoever runs the parent has to see it.
_CANNOT_START = frozenset({64, 69, 78})

# Gives the command of a child from the number of its lifeline.
Command = Callable[[int], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildAt:
    """A child that runs; `admin` is None until it has said where it is."""

    place: int
    pid: int
    admin: str | None


class _Place:
    """One of the places: the process in it, or when the next one is due, or the code with which the last one ended."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: subprocess.Popen[bytes] | None = None
        self.link: ParentEnd | None = None
        self.admin: str | None = None
        self.since = 0.0
        self.pause = _FIRST_PAUSE_SECONDS
        self.due: float | None = 0.0
        self.code = 0

    @property
    def is_over(self) -> bool:
        """Say whether nothing runs here and nothing will."""
        return self.process is None and self.due is None


class Children:
    """`count` processes of one command. `environment` is theirs as a whole."""

    def __init__(
        self,
        command: Command,
        count: int,
        *,
        environment: Mapping[str, str],
        shutdown: Shutdown,
        telemetry: Telemetry,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = command
        self._environment = dict(environment)
        self._shutdown = shutdown
        self._telemetry = telemetry
        self._monotonic = monotonic
        self._places = [_Place(number) for number in range(count)]
        self._is_told = False

    def at(self) -> tuple[ChildAt, ...]:
        """Give the children that run, by place. Any thread."""
        found = ((place.number, place.process, place.admin) for place in self._places)
        return tuple(
            ChildAt(place=number, pid=process.pid, admin=admin)
            for number, process, admin in found
            if process is not None
        )

    @property
    def wanted(self) -> int:
        """Give how many are to run: those that left by themselves are not replaced. Any thread."""
        return sum(not place.is_over for place in self._places)

    def run(self, *, on_up: Callable[[], None]) -> int:
        """Keep the children until the shutdown is told and all have ended; gives the worst of their exit codes.

        `on_up` is called once, when every child has said where it is. Children that outlive the shutdown's deadline by
        a margin are killed.
        """
        is_up = False
        try:
            while not all(place.is_over for place in self._places):
                self._tell_once()
                for place in self._places:
                    self._look(place)
                if not is_up and self._is_up():
                    is_up = True
                    on_up()
                self._wait()
        finally:
            self._leave_nobody()
        return max(place.code for place in self._places)

    def _is_up(self) -> bool:
        """Say whether some run, and each of those has said where it is."""
        left = [place for place in self._places if not place.is_over]
        return bool(left) and all(place.admin is not None for place in left)

    def _tell_once(self) -> None:
        """Forward the one signal; and end by force what outlives its own watchdog."""
        notice = self._shutdown.notice
        if notice is None:
            return
        if not self._is_told:
            self._is_told = True
            self._telemetry.drain_started(cause=notice.cause, seconds=notice.seconds)
            for place in self._places:
                if place.process is None and place.due is not None:
                    place.code = 0  # the crash before this pause is not how the drain ends
                place.due = None
                if place.process is not None:
                    place.process.send_signal(signal.SIGTERM)
        elif self._monotonic() >= notice.deadline:
            self._kill()

    def _look(self, place: _Place) -> None:
        if place.process is not None:
            if place.admin is None and place.link is not None:
                place.admin = place.link.heard()
            if (code := place.process.poll()) is not None:
                self._ended(place, code)
        if place.process is None and place.due is not None and self._monotonic() >= place.due:
            self._start(place)

    def _start(self, place: _Place) -> None:
        place.admin, place.due = None, None
        place.since = self._monotonic()
        try:
            place.link = ParentEnd()
            number = place.link.child_number
            place.process = subprocess.Popen(  # noqa: S603 - this very program
                self._command(number), pass_fds=(number,), env=self._environment, stdin=subprocess.DEVNULL
            )
        except OSError as error:  # no process, memory or file to be had just now; the others go on
            self._let_go(place)
            pause = self._next_pause(place)
            place.due = self._monotonic() + pause
            self._telemetry.child_not_started(place.number, error, again_after=pause)
            return
        place.link.handed_over()
        self._telemetry.child_started(place.number, pid=place.process.pid)

    def _ended(self, place: _Place, code: int) -> None:
        assert place.process is not None  # noqa: S101 - the caller has looked
        pid, place.process, place.admin = place.process.pid, None, None
        self._let_go(place)
        place.code = _code_of(code, is_told=self._is_told)
        pause = self._pause(place)
        self._telemetry.child_ended(place.number, pid=pid, exit_code=place.code, again_after=pause)
        if pause is not None:
            place.due = self._monotonic() + pause
        elif place.code in _CANNOT_START and not self._is_told:
            self._shutdown.request(f"a worker process could not start (exit code {place.code})")

    def _pause(self, place: _Place) -> float | None:
        """Give the seconds until the place is filled again, None when it is not."""
        if self._is_told or place.code == 0 or place.code in _CANNOT_START:
            return None
        if self._monotonic() - place.since >= _STEADY_SECONDS:
            place.pause = _FIRST_PAUSE_SECONDS
        return self._next_pause(place)

    def _next_pause(self, place: _Place) -> float:
        pause, place.pause = place.pause, min(place.pause * 2, _LONGEST_PAUSE_SECONDS)
        return pause

    def _let_go(self, place: _Place) -> None:
        if place.link is not None:
            place.link.close()
            place.link = None

    def _wait(self) -> None:
        """Wait a moment, or until a child says something or is gone."""
        silent = [place.link for place in self._places if place.link is not None and place.admin is None]
        select.select(silent, [], [], _LOOK_SECONDS)

    def _leave_nobody(self) -> None:
        """Let those that are left when this one fails drain as on any other day, and kill what does not."""
        left = [place.process for place in self._places if place.process is not None]
        if left:
            deadline = self._shutdown.request("its parent failed").deadline
            for process in left:
                process.terminate()
            for process in left:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - self._monotonic()))
        self._kill()
        for place in self._places:
            self._let_go(place)

    def _kill(self) -> None:
        for place in self._places:
            if place.process is not None:
                place.process.kill()
                place.process.wait()


def _code_of(code: int, *, is_told: bool) -> int:
    """Give an exit code as a shell shows it; a child that was told before it could hear had nothing to give back."""
    if is_told and code == -signal.SIGTERM:
        return 0
    return code if code >= 0 else _KILLED - code
