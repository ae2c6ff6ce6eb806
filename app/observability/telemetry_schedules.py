"""What schedulers say: the wording of their events, and the counters that move with them. A part of `telemetry`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby
from typing import Literal

from ..domain.schedule import Decided, OccurrenceOutcome
from .metrics import Metrics


class ScheduleEvents:
    """The events of schedulers; whoever inherits them says how they are said."""

    metrics: Metrics

    def scheduler_started(self, schedules: int) -> None:
        """A scheduler decides so many schedules."""
        self._say("info", "scheduler.started", schedules=schedules)

    def scheduler_stopped(self) -> None:
        """A scheduler has left in order."""
        self._say("info", "scheduler.stopped")

    def schedule_decided(self, schedule: str, job: str, decided: Sequence[Decided], *, is_cut: bool = False) -> None:
        """Occurrences are decided and committed; skipped ones of one reason are said together.

        `is_cut`: there were more, and those before the first of these are passed over.
        """
        for outcome in OccurrenceOutcome:
            self.metrics.occurrences(schedule, outcome.value, sum(one.outcome is outcome for one in decided))
        for (outcome, why), group in groupby(decided, key=lambda one: (one.outcome, one.why)):
            ones = list(group)
            facts: dict[str, object] = {"schedule": schedule, "job": job}
            if outcome is OccurrenceOutcome.FIRED:
                for one in ones:
                    self._say("info", "schedule.fired", **facts, at=one.at.isoformat(), job_id=str(one.job_id))
                continue
            facts |= {"at": ones[-1].at.isoformat(), "count": len(ones), "code": _code(why)}
            if is_cut and ones[0] is decided[0]:
                facts["passed_over_before"] = ones[0].at.isoformat()
            self._say("warning", "schedule.skipped", **facts)

    def schedule_pass_failed(self, error: BaseException) -> None:
        """A pass did not come to its end; repeated after a pause, and no occurrence is decided twice."""
        self._fail("schedule.pass_failed", error)

    def schedules_seen(self, lag: timedelta) -> None:
        """Show for how long the oldest occurrence has been due."""
        self.metrics.show_schedule_lag(max(lag, timedelta()).total_seconds())

    def _say(self, level: Literal["debug", "info", "warning", "error"], event: str, **facts: object) -> None:
        raise NotImplementedError

    def _fail(self, event: str, error: BaseException, **facts: object) -> None:
        raise NotImplementedError


def _code(why: str | None) -> str:
    """Give the reason without the text of an error, which may quote a key."""
    return (why or "").partition(":")[0]
