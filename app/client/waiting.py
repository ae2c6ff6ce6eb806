"""Waiting for a job's end: one request after the other that the service holds, until the time is over.

Sends nothing itself. Called by both shells, once per wait.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from ..domain.errors import JobTimeout
from .answers.shown import Result
from .call import Answer, Call
from .calls.jobs import get_result
from .tries import Terms
from .wire import Decodes, JobLike, id_of

# What the service holds a request at most, and what proxies let pass without a byte.
_LONGEST_HOLD_SECONDS = 30
_ACCEPTED = 202


class Waiting:
    """One wait. `timeout` None: for ever."""

    def __init__(self, job: JobLike, terms: Terms, *, timeout: timedelta | None) -> None:
        self._job_id = id_of(job)
        self._terms = terms
        self._timeout = timeout
        self._until = None if timeout is None else terms.monotonic() + timeout.total_seconds()
        self._plain = get_result(job)
        self._held_seconds = 0
        self._asked_at = 0.0

    def call(self) -> Call[Result | float]:
        """Give the next request; its answer is the result, or how long to pause before asking again."""
        left = self._left()
        self._held_seconds = min(_LONGEST_HOLD_SECONDS, int(left) + (left > int(left)))
        self._asked_at = self._terms.monotonic()
        headers = {"Prefer": f"wait={self._held_seconds}"}
        return Call(
            method="GET",
            path=self._plain.path,
            read=self._read,
            headers=headers,
            wait_seconds=float(self._held_seconds),
            # The last answer may need a moment more than there was to wait.
            most_seconds=left + self._terms.patience.timeout.total_seconds(),
        )

    def _read(self, answer: Answer) -> Result | float:
        result = self._plain.read(answer)
        if answer.status != _ACCEPTED:
            return result
        if self._left() <= 0:
            raise JobTimeout(
                f"job {self._job_id} did not end within {self._timeout}; it is {result.state}, and goes on",
                fix="wait again, or longer; cancel it if it is not wanted any more",
                job_id=self._job_id,
                state=result.state.value,
            )
        # Held for as long as it was asked to: ask again at once. Else the process drains, and says when.
        was_held = self._terms.monotonic() - self._asked_at >= self._held_seconds
        return 0.0 if was_held else min(self._left(), answer.retry_after_seconds or 1.0)

    def _left(self) -> float:
        return _LONGEST_HOLD_SECONDS if self._until is None else max(0.0, self._until - self._terms.monotonic())


def decoded(result: Result, job_type: Decodes[Any] | None) -> Any:  # noqa: ANN401 - what the job returned
    """Give what a job returned, as its type's own when there is one at hand."""
    return result.result if job_type is None else job_type.result_of(json.dumps(result.result))
