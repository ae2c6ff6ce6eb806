"""What a job type declares about itself, checked when it is declared.

Values that can never work are refused here and not found out by the first job. Called by `job`, describe, job types
and the worker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypedDict

from ..domain.errors import SettingsInvalid
from ..domain.job import (
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    LONGEST_DURATION,
    MAX_PRIORITY,
    NAME_PATTERN,
    SHORTEST_DURATION,
    OnConflict,
)
from ..domain.redaction import checked_paths
from ..domain.retention import check_retention
from ..domain.retry import RetryPolicy
from .limits import Limit, Rate, refuse_limits
from .template import parse_template

Abort = Literal["cancel", "signal"]
# A template, or a function of the payload that only processes with the job's module can evaluate.
Rule: TypeAlias = str | Callable[[Any], str]

_NAME = re.compile(NAME_PATTERN)
_DURATIONS = ("timeout", "deadline", "max_queue_time", "dedupe_for", "step_timeout", "event_poll")


class PolicyOptions(TypedDict, total=False):
    """The keywords of `@job`, each a field of `JobPolicy`."""

    queue: str
    priority: int
    retry: RetryPolicy
    timeout: timedelta | None
    deadline: timedelta | None
    max_queue_time: timedelta | None
    tenant: Rule | None
    idempotency_key: Rule | None
    on_conflict: OnConflict
    dedupe_for: timedelta | None
    terminal_on: Sequence[type[BaseException]]
    abort: Abort
    step_timeout: timedelta | None
    event_poll: timedelta | None
    limits: Sequence[Limit]
    rate: Rate | None
    retention: timedelta | None
    redact: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    """How jobs of one type are queued, repeated and ended.

    `timeout` bounds one attempt's running time, `deadline` the wall time from enqueue, `max_queue_time` the wait for
    the first start. Errors of the types in `terminal_on` are not retried. With `abort="signal"` a body is told to stop
    and never cancelled. `priority` is 0 to 9, lower first. `step_timeout` bounds one step's running time.
    `event_poll` is how often the store is searched for waiting runs that a wake-up missed: the least of a worker's job
    types counts, 30 s without any. `limits` bound how many run at once and `rate` how many begin, over the whole fleet.
    `redact` names places in payloads, results and values that are shown to nobody who does not ask for them by name.
    `retention` is how long ended jobs of the type are kept, whatever they ended as.
    """

    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    retry: RetryPolicy = RetryPolicy()  # noqa: RUF009 # frozen
    timeout: timedelta | None = None
    deadline: timedelta | None = None
    max_queue_time: timedelta | None = None
    tenant: Rule | None = None
    idempotency_key: Rule | None = None
    on_conflict: OnConflict = "return"
    dedupe_for: timedelta | None = None
    terminal_on: Sequence[type[BaseException]] = ()
    abort: Abort = "cancel"
    step_timeout: timedelta | None = None
    event_poll: timedelta | None = None
    limits: Sequence[Limit] = ()
    rate: Rate | None = None
    retention: timedelta | None = None
    redact: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._refuse_impossible()
        refuse_limits(self.limits, self.rate, is_name)
        object.__setattr__(self, "limits", tuple(self.limits))
        object.__setattr__(self, "redact", checked_paths(self.redact))
        object.__setattr__(self, "terminal_on", tuple(self.terminal_on))
        for field in _DURATIONS:
            _refuse_duration(field, getattr(self, field))
        if self.retention is not None:
            check_retention("retention", self.retention)
        for field in ("tenant", "idempotency_key"):
            _refuse_rule(field, getattr(self, field))

    def _refuse_impossible(self) -> None:
        checks = (
            ("queue", is_name(self.queue), f"match {NAME_PATTERN}"),
            ("priority", is_priority(self.priority), f"be a whole number from 0 to {MAX_PRIORITY}"),
            ("retry", isinstance(self.retry, RetryPolicy), "be a RetryPolicy"),
            ("on_conflict", self.on_conflict in ("return", "error"), "be 'return' or 'error'"),
            ("abort", self.abort in ("cancel", "signal"), "be 'cancel' or 'signal'"),
            ("terminal_on", _are_errors(self.terminal_on), "be a list of exception classes"),
        )
        for field, holds, rule in checks:
            if not holds:
                raise SettingsInvalid(f"{field}={getattr(self, field)!r} cannot work", fix=f"{field} must {rule}")


def is_name(text: object) -> bool:
    """Say whether a text may name a queue or a job type."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def is_priority(number: object) -> bool:
    """Say whether a number is a priority; a boolean is not."""
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= MAX_PRIORITY


def _are_errors(kinds: object) -> bool:
    return isinstance(kinds, list | tuple | set | frozenset) and all(
        isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds
    )


def _refuse_duration(field: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, timedelta) or not SHORTEST_DURATION <= value <= LONGEST_DURATION:
        raise SettingsInvalid(
            f"{field}={value!r} cannot work",
            fix=f"{field} must be a timedelta from one millisecond to five years; leave it out for none",
        )


def _refuse_rule(field: str, rule: object) -> None:
    if isinstance(rule, str):
        parse_template(rule)
    elif rule is not None and not callable(rule):
        raise SettingsInvalid(
            f"{field}={rule!r} cannot work", fix=f"{field} must be a template or a function of the payload"
        )
