"""Jobs that were there before a run of this process called them: whoever runs one need not know that it is waited for.

The end of a job is told to those who wait for it where it is some run's child; to ask that of every job would cost each
of them a statement. So the process that suspended the caller keeps such jobs in mind, and looks for their ends when it
looks for what is due. In mind alone: what it forgets, or dies with, the sweep over calls finds. Pure, no SQL; one per
process, filled by `settle_runs`, emptied by `waits`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ...domain.job import JobId

_MOST = 1000  # jobs; beyond them the oldest is forgotten, so that a look stays one short statement
_KEPT_SECONDS = 3600.0


@dataclass(slots=True)
class Called:
    """The jobs that runs of one process wait for, and when each is forgotten."""

    monotonic: Callable[[], float]
    _until: dict[JobId, float] = field(default_factory=dict)

    def add(self, jobs: Iterable[JobId]) -> None:
        """Keep jobs in mind."""
        for job_id in jobs:
            self._until.pop(job_id, None)
            self._until[job_id] = self.monotonic() + _KEPT_SECONDS
        while len(self._until) > _MOST:
            del self._until[next(iter(self._until))]

    def now(self) -> list[JobId]:
        """Give those that are kept in mind."""
        if self._until:
            now = self.monotonic()
            self._until = {job_id: until for job_id, until in self._until.items() if until > now}
        return list(self._until)

    def drop(self, jobs: Iterable[JobId]) -> None:
        """Forget jobs that have ended."""
        for job_id in jobs:
            self._until.pop(job_id, None)
