"""When a request is sent again: only what cannot be done twice, after pauses, until a deadline. Sends nothing itself.

A read may always be repeated. Anything else is given an `Idempotency-Key`, under which the service does it once and
answers the repetition as it answered the first; so is sent again what had no answer, or 429, or 503. Called by both
shells, once per request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

from .call import Answer, Call
from .problem import UnreachableError, problem_of, unreadable

T = TypeVar("T")

KEY_HEADER = "Idempotency-Key"
_IN_FLIGHT = "IDEMPOTENCY_IN_FLIGHT"
_REFUSED = 400  # and above
_MOST_DOUBLINGS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the client tries. `timeout` is one try's, `deadline` that of all tries of a request with their pauses.

    Pauses grow from `first_pause` to `longest_pause`, with full jitter; a `Retry-After` makes one at least so long.
    """

    timeout: timedelta = timedelta(seconds=10)
    deadline: timedelta = timedelta(seconds=30)
    first_pause: timedelta = timedelta(milliseconds=100)
    longest_pause: timedelta = timedelta(seconds=5)

    def pause_seconds(self, failures: int, jitter: float, at_least: float | None = None) -> float:
        """Give the pause after so many failures in a row; `jitter` is from 0 to 1."""
        longest = self.longest_pause.total_seconds()
        grown = self.first_pause.total_seconds() * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)
        return (at_least or 0.0) + jitter * min(longest, grown)


@dataclass(slots=True, kw_only=True)
class Terms:
    """What all requests of one client share: its patience, its clock, its chance, and what it found out."""

    patience: Patience
    monotonic: Callable[[], float]
    roll: Callable[[], float]


@dataclass(slots=True)
class Tries:
    """The tries of one request."""

    call: Call[Any]
    terms: Terms
    _failures: int = 0
    _maybe_done: bool = False
    _key: str = field(default_factory=lambda: f'"{uuid4()}"')
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        patient = self.terms.patience.deadline.total_seconds() + self.call.wait_seconds
        self._until = self.terms.monotonic() + min(patient, self.call.most_seconds)

    def headers(self) -> dict[str, str]:
        """Give the headers of the next try: the same key each time."""
        return {**self.call.headers, **({KEY_HEADER: self._key} if self._is_change and self.call.is_kept else {})}

    def timeout_seconds(self) -> float:
        """Give how long the next try may take."""
        left = self._until - self.terms.monotonic()
        return max(0.001, min(self.terms.patience.timeout.total_seconds() + self.call.wait_seconds, left))

    def after(self, answer: Answer) -> float | None:
        """Give the pause in seconds before the next try, or None: the answer stands."""
        if not self._may_repeat(answer):
            return None
        pause = self._next_pause(answer.retry_after_seconds)
        return None if self._is_over(pause) else pause

    def after_error(self, error: Exception, *, was_sent: bool) -> float:
        """Give the pause in seconds after a try without an answer; `was_sent`: the service may have done it.

        Raises:
            UnreachableError: the deadline has come.
        """
        self._maybe_done = self._maybe_done or was_sent
        pause = self._next_pause(None)
        if self._is_over(pause) or (self._maybe_done and not self.call.is_kept):
            said = str(error) or type(error).__name__
            cause = f"{self.call.method} {self.call.path} had no answer: {said}"
            raise UnreachableError(cause, maybe_done=self._maybe_done and self._is_change) from error
        return pause

    @property
    def _is_change(self) -> bool:
        return self.call.method != "GET"

    def _may_repeat(self, answer: Answer) -> bool:
        match answer.status:
            case 429:
                return True
            case 503:
                return self.call.is_kept
            case 409:
                return problem_of(answer).code == _IN_FLIGHT
            case _:
                return False

    def _next_pause(self, at_least: float | None) -> float:
        self._failures += 1
        return self.terms.patience.pause_seconds(self._failures, self.terms.roll(), at_least)

    def _is_over(self, pause: float) -> bool:
        return self.terms.monotonic() + pause >= self._until


def read(call: Call[T], answer: Answer) -> T:
    """Give what an answer holds.

    Raises:
        ProblemError: it is a refusal, or nothing of the service's.
    """
    if answer.status >= _REFUSED:
        raise problem_of(answer)
    try:
        return call.read(answer)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise unreadable(answer, exc if isinstance(exc, ValueError) else ValueError(repr(exc))) from exc
