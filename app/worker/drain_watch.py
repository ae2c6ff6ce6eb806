"""What a drain owes the runs while the worker's loop is blocked: they are told, and in the end abandoned, all the same.

Looked at by the heartbeat's thread a few times a second. A loop that turns is always first, and then there is nothing
to do here. Owned by `session`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..domain.drain import DrainReport
from ..domain.job import WorkerId
from ..lifecycle.drain import DrainNotice
from ..lifecycle.role import Life
from .told import Told

_TURN_SECONDS = 0.05  # what a loop that turns takes at most to tell by itself
_WATCHDOG_SECONDS = 3.0  # past the deadline a process with a watchdog is gone


class DrainWatch:
    """Watches one life's drain from outside its loop."""

    def __init__(
        self, life: Life, told: Told, *, tell: Callable[[DrainNotice], None], monotonic: Callable[[], float]
    ) -> None:
        self._life = life
        self._told = told
        self._tell = tell
        self._monotonic = monotonic

    def look(self) -> float | None:
        """Tell whom the loop has not told. Gives the seconds until the deadline once what runs is to be abandoned."""
        notice, now = self._life.notice, self._monotonic()
        if notice is None or self._life.is_idle.is_set():
            return None
        if now >= notice.started + _TURN_SECONDS and not self._told.has_heard(notice):
            self._tell(notice)
        if now >= notice.abandon_at + notice.reserve / 8 and self._told.give_up():
            return max(notice.deadline - now, 0.0)
        return None

    def report(self, worker_id: WorkerId) -> DrainReport | None:
        """Say what became of the runs, for a loop that may never say it."""
        return self._told.report(worker_id)

    def is_bounded(self) -> bool:
        """Say whether the drain's own watchdog ends the process soon: then a blocked loop is not the reason to."""
        notice = self._life.notice
        return notice is not None and self._monotonic() < notice.deadline + _WATCHDOG_SECONDS
