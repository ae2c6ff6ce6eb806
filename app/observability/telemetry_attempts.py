"""The words for how an attempt ended: the event, its level and its facts, by outcome. Used by `telemetry`."""

from __future__ import annotations

from typing import Literal, TypeAlias, assert_never

from ..domain.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    Held,
    Interrupted,
    Outcome,
    Retried,
    Snoozed,
    Suspended,
)
from .facts import kind_of

Level: TypeAlias = Literal["debug", "info", "warning", "error"]

_MOST = 20  # waits named in one event


def worded(outcome: Outcome) -> tuple[Level, str, dict[str, object]]:
    """Give the level, the name and the facts of the event that says how an attempt ended."""
    match outcome:
        case Completed(late=late):
            return "info", "attempt.completed", {"late": late}
        case Snoozed(delay=delay):
            return "info", "attempt.suspended", {"delay_ms": round(delay.total_seconds() * 1000)}
        case Suspended(waits=waits):
            return "info", "attempt.suspended", {"waits": [f"{wait.kind.value} {wait.name}" for wait in waits[:_MOST]]}
        case Retried(error=error, delay=delay):
            return "warning", "attempt.retried", {"delay_ms": round(delay.total_seconds() * 1000), **kind_of(error)}
        case DeadLettered(error=error, reason=reason):
            return "error", "attempt.dead", {"reason": reason.value, **kind_of(error)}
        case Interrupted(cause=cause, error=error):
            return "info", "attempt.interrupted", {"cause": cause, **kind_of(error)}
        case Cancelled(reason=reason):
            return "info", "attempt.cancelled", {"reason": reason}
        case Held(error=error, version=version):
            return "warning", "attempt.held", {"recorded_by": version, **kind_of(error)}
        case _:
            assert_never(outcome)
