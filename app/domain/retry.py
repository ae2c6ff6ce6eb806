"""When a failed attempt runs again: a policy and the pure function from attempt to delay.

Randomness comes in as a number, so the same inputs give the same delay.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from .errors import SettingsInvalid

Jitter = Literal["full", "none"]

MOST_ATTEMPTS = 32_000  # the column is a smallint
MOST_CRASHES = 1_000
STEEPEST_FACTOR = 100.0
LONGEST_BACKOFF = timedelta(days=365)  # so that no due time leaves the years that a row may hold


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how soon an attempt is repeated.

    `max_attempts` counts failures, `max_crashes` workers lost while running the job; the two budgets are apart.
    Values that can never work are refused with `SETTINGS_INVALID` at declaration.
    """

    max_attempts: int = 25
    backoff: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    max_backoff: timedelta = timedelta(hours=1)
    jitter: Jitter = "full"
    max_crashes: int = 3

    def __post_init__(self) -> None:
        zero = timedelta()
        checks = (
            ("max_attempts", _is_whole(self.max_attempts, MOST_ATTEMPTS), f"a whole number from 1 to {MOST_ATTEMPTS}"),
            ("max_crashes", _is_whole(self.max_crashes, MOST_CRASHES), f"a whole number from 1 to {MOST_CRASHES}"),
            ("backoff", _is_duration(self.backoff) and self.backoff > zero, "a timedelta longer than zero"),
            (
                "factor",
                _is_number(self.factor) and 1.0 <= self.factor <= STEEPEST_FACTOR,
                f"a number from 1 to {STEEPEST_FACTOR:g}",
            ),
            (
                "max_backoff",
                _is_duration(self.max_backoff, self.backoff) and self.backoff <= self.max_backoff <= LONGEST_BACKOFF,
                f"a timedelta from backoff to {LONGEST_BACKOFF.days} days",
            ),
            ("jitter", self.jitter in ("full", "none"), "'full' or 'none'"),
        )
        for name, holds, rule in checks:
            if not holds:
                raise SettingsInvalid(
                    f"RetryPolicy({name}={getattr(self, name)!r}) cannot work",
                    fix=f"make {name} {rule}",
                )

    def delay_after(self, attempt: int, roll: float) -> timedelta:
        """Give the wait after failure number `attempt` (1 is the first) for a random number `roll` in [0, 1).

        Full jitter: a uniform draw below the exponential bound, so that a crowd of failures does not come back as one.
        """
        ceiling = self.max_backoff.total_seconds()
        try:
            bound = min(ceiling, self.backoff.total_seconds() * self.factor ** (max(attempt, 1) - 1))
        except OverflowError:
            bound = ceiling
        return timedelta(seconds=bound * roll if self.jitter == "full" else bound)


def _is_whole(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_duration(value: object, *others: object) -> bool:
    return all(isinstance(each, timedelta) for each in (value, *others))
