"""How a body may end other than by returning or failing: for good, again later, or not yet.

Raised by job authors, read by the worker, which turns them into outcomes. None of them is stored as it is.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ..domain.errors import RequestInvalid
from ..domain.job import LONGEST_DURATION


class Terminal(Exception):
    """No retry can help: the job becomes a dead letter now, whatever budget is left."""


class RetryAfter(Exception):
    """This attempt failed and the next should not start before the time named; counted like any failure.

    `when` is how long to wait, or the aware instant to wait for. Without budget left the job is dead all the same.
    """

    def __init__(self, when: timedelta | datetime, message: str = "") -> None:
        super().__init__(message or f"retry after {when}")
        if isinstance(when, datetime) and when.tzinfo is None:
            raise RequestInvalid(
                f"RetryAfter({when.isoformat()}) names no time zone", fix="pass an aware datetime, or a timedelta"
            )
        if isinstance(when, timedelta) and not timedelta() <= when <= LONGEST_DURATION:
            raise RequestInvalid(f"RetryAfter({when}) is not a wait", fix="pass between zero and five years")
        self.when = when

    def delay_from(self, now: datetime) -> timedelta:
        """Give the wait from `now` (aware), never negative and at most five years."""
        if isinstance(self.when, timedelta):
            return self.when
        return min(max(self.when.astimezone(UTC) - now, timedelta()), LONGEST_DURATION)


class Snooze(BaseException):
    """Not yet: the run gives its worker back and starts again after `delay`; counted against no budget.

    Derives from `BaseException` so that an `except Exception` in a body cannot eat it.
    """

    def __init__(self, delay: timedelta) -> None:
        super().__init__(f"snooze for {delay}")
        if not timedelta() < delay <= LONGEST_DURATION:
            raise RequestInvalid(f"Snooze({delay}) is not a wait", fix="pass more than zero and at most five years")
        self.delay = delay
