"""Following a job: from the events of one connection after the other to what happens to the job, each thing once.

Sends nothing itself: it says what to ask for next and when, and takes in what came. A stream that breaks, or ends
because its process drains, is taken up again where it was. Called by both shells, once per followed job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from .answers.runs import Attempt, Ended, Line, Step
from .answers.shown import JobSummary, Progress, Shown
from .call import Answer, Call, path
from .problem import UnreachableError, problem_of, unreadable
from .sse import EventParser, SentEvent
from .tries import Terms
from .wire import JobLike, id_of

EventKind: TypeAlias = Literal["state", "attempt", "step", "progress", "log", "end"]
EventData: TypeAlias = JobSummary | Attempt | Step | Progress | Line | Ended

# Longer than two of the comments that keep a stream alive: without any the connection is dead.
SILENCE_SECONDS = 45.0
_REFUSED = 400  # and above
MEDIA_TYPE = "text/event-stream"
_COME_BACK = frozenset({429, 502, 503, 504})
_DATA: dict[str, type[JobSummary | Attempt | Step | Progress | Line | Ended]] = {
    "state": JobSummary,
    "attempt": Attempt,
    "step": Step,
    "progress": Progress,
    "log": Line,
    "end": Ended,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """Something that happened to a job. `id` is where to go on after: `events(job, after=id)`.

    `data` by `kind`: `state` a JobSummary, `attempt` an Attempt, `step` a Step, `progress` a Progress, `log` a Line,
    `end`, the last, an Ended.
    """

    kind: EventKind
    id: str
    data: EventData


class Following:
    """One job, followed over as many connections as it takes."""

    def __init__(self, job: JobLike, terms: Terms, *, after: str | None) -> None:
        self._where = path("v1", "jobs", id_of(job), "events")
        self._terms = terms
        self._parser = EventParser(after or "")
        self._failures = 0
        self._failing_since: float | None = None
        self._at_least: float | None = None
        self.has_ended = False

    def call(self) -> Call[None]:
        """Give the request for the stream from where it was; its answer is not read as a whole."""
        self._parser = EventParser(self._parser.last_id)
        resumed = {"Last-Event-ID": self._parser.last_id} if self._parser.last_id else {}
        headers = {"Accept": MEDIA_TYPE, "Cache-Control": "no-store", **resumed}
        return Call(method="GET", path=self._where, read=lambda _: None, headers=headers)

    def take(self, chunk: bytes) -> Iterator[JobEvent]:
        """Take bytes of the stream in; give what they tell. `has_ended` after the last of all."""
        self._failures, self._failing_since, self._at_least = 0, None, None
        for sent in self._parser.feed(chunk):
            if sent.name == "draining":
                return
            event = _read(sent)
            self.has_ended = self.has_ended or sent.name == "end"
            if event is not None:
                yield event

    def refused(self, answer: Answer) -> None:
        """Take in an answer that is no stream.

        Raises:
            ProblemError: it will not be another one later.
        """
        problem = problem_of(answer) if answer.status >= _REFUSED else unreadable(answer, ValueError("it is no stream"))
        if answer.status not in _COME_BACK or self._is_out_of_patience():
            raise problem
        self._at_least = answer.retry_after_seconds

    def lost(self, error: Exception) -> None:
        """Take in that the connection broke, or did not stand.

        Raises:
            UnreachableError: it has not stood for as long as the client may try.
        """
        if self._is_out_of_patience():
            raise UnreachableError(f"GET {self._where} had no answer: {error}", maybe_done=False) from error

    def pause_seconds(self) -> float:
        """Give how long to wait before the next connection."""
        self._failures += 1
        told = (self._parser.retry_ms or 0) / 1000 if self._failures == 1 else 0.0
        jitter = self._terms.roll()
        return self._terms.patience.pause_seconds(self._failures, jitter, self._at_least) + told * jitter

    def _is_out_of_patience(self) -> bool:
        now = self._terms.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        return now - self._failing_since >= self._terms.patience.deadline.total_seconds()


def _read(sent: SentEvent) -> JobEvent | None:
    """Give an event, or None for one of a kind that a newer service sends."""
    model: type[Shown] | None = _DATA.get(sent.name)
    if model is None:
        return None
    data = model.model_validate(json.loads(sent.data))
    return JobEvent(kind=sent.name, id=sent.last_id, data=data)  # type: ignore[arg-type] # both are `_DATA`'s
