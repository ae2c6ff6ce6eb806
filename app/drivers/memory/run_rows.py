"""What the store keeps of runs: steps by run, waits and notes by job, and events.

Values and their tables; the rules of when a row is made or goes are the verbs'.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from ...domain.event import EventId, EventView
from ...domain.job import JobId, RunId
from ...domain.step import LogLine, Place, ProgressView, StepKind, StepView


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A recorded step, and the number of the event that it took."""

    view: StepView
    event_seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRow:
    """What a run waits for.

    `is_awaited` until its run is told of a child that will give no result, and again once it is asked for again.
    """

    name: str
    kind: StepKind
    place: Place
    began_at: datetime
    code_version: str
    due_at: datetime | None = None
    tenant: str | None = None
    event: str | None = None
    key: str | None = None
    child_id: JobId | None = None
    is_awaited: bool = True

    @property
    def order(self) -> tuple[datetime, int, str, str]:
        """Give its place among the waits of its run: the first that began, then as they were asked for."""
        return (self.began_at, self.place.number, self.place.branch, self.name)


class Runs:
    """The tables of runs and events."""

    def __init__(self) -> None:
        self.steps: defaultdict[RunId, dict[str, Step]] = defaultdict(dict)
        self.waits: defaultdict[JobId, dict[str, WaitRow]] = defaultdict(dict)
        self.lines: defaultdict[JobId, list[LogLine]] = defaultdict(list)
        self.progress: dict[JobId, ProgressView] = {}
        self.events: list[EventView] = []
        self.called: set[JobId] = set()  # jobs that were there before their call: nobody is told of their ends
        self._last_seq = 0
        self._last_event_seq = 0

    def next_seq(self) -> int:
        """Give a number larger than every one before: the order of steps and lines."""
        self._last_seq += 1
        return self._last_seq

    def next_event_seq(self) -> int:
        """Give a number larger than that of every event before, deleted ones too."""
        self._last_event_seq += 1
        return self._last_event_seq

    def steps_of(self, run_id: RunId) -> list[Step]:
        """Give what is recorded of a run, in order of record."""
        return sorted(self.steps.get(run_id, {}).values(), key=lambda step: step.view.seq)

    def waits_of(self, job_id: JobId) -> list[WaitRow]:
        """Give what a job's run waits for, in order of beginning."""
        return sorted(self.waits_by_name(job_id).values(), key=lambda wait: wait.order)

    def waits_by_name(self, job_id: JobId) -> Mapping[str, WaitRow]:
        """Give what a job's run waits for, by name."""
        return self.waits.get(job_id, {})

    def all_waits(self) -> Iterator[tuple[JobId, WaitRow]]:
        """Give every wait of every job, by job id and in order of beginning."""
        for job_id in sorted(self.waits):
            yield from ((job_id, wait) for wait in self.waits_of(job_id))

    def drop_wait(self, job_id: JobId, name: str) -> None:
        """Delete one wait, if it is there."""
        self.waits[job_id].pop(name, None)
        if not self.waits[job_id]:
            del self.waits[job_id]

    def forget(self, job_id: JobId, run_id: RunId, name: str) -> None:
        """Delete a wait, or the record of an event that did not come in time."""
        self.drop_wait(job_id, name)
        step = self.steps[run_id].get(name)
        if step is not None and step.view.kind is StepKind.EVENT and not step.view.has_event:
            del self.steps[run_id][name]

    def taken(self, run_id: RunId) -> frozenset[int]:
        """Give the numbers of the events that a run has taken."""
        return frozenset(step.event_seq for step in self.steps_of(run_id) if step.event_seq is not None)

    def event(self, event_id: EventId) -> EventView | None:
        """Give the event of an id."""
        return next((event for event in self.events if event.id == event_id), None)

    def clear(self, job_id: JobId, run_id: RunId) -> None:
        """Delete a run: its steps, waits, lines and progress."""
        self.steps.pop(run_id, None)
        self.waits.pop(job_id, None)
        self.lines.pop(job_id, None)
        self.progress.pop(job_id, None)
