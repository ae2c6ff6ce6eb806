"""What one follower of a job has not been told yet: news made of successive looks, numbered so that it can resume.

A follower that comes back names the last number it has; what is recorded since is told, and nothing twice but the state
and the progress as they are. Steps of branches side by side may become visible out of the order of their numbers: what
was seen lately is remembered by number, and a position says how many there were. Called by the streams and the command
line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, TypeAlias, assert_never

from ..domain.edit import version_of
from ..domain.job import JobId
from ..domain.snapshot import AttemptView, JobView
from ..domain.state import TERMINAL
from ..domain.step import LogLine, ProgressView, RunView, StepView
from ..drivers.protocol import JobDriver
from .render import Document
from .represent import attempt_document, job_document
from .run_documents import line_document, progress_document, step_document

_DIGITS = 6
_MOST = 10**_DIGITS - 1
_LONGEST = 19 + 3 * _DIGITS  # of a bigint and three counts
# How long a step may be on its way to being visible after one with a larger number was.
_LATE_SECONDS = 5.0


class NewsKind(StrEnum):
    """What a piece of news is of; the words of the stream's events."""

    STATE = "state"
    ATTEMPT = "attempt"
    STEP = "step"
    PROGRESS = "progress"
    LOG = "log"
    END = "end"


Item: TypeAlias = JobView | AttemptView | StepView | ProgressView | LogLine | None


class News(NamedTuple):
    """One piece of news. An `end` without an item is that of a job that was deleted."""

    kind: NewsKind
    number: int
    item: Item


class Look(NamedTuple):
    """A job as a look found it; `view` is None once it is gone. `run` has what was recorded after `after`."""

    view: JobView | None
    attempts: tuple[AttemptView, ...] = ()
    run: RunView | None = None
    at: float = 0.0  # seconds of a monotonic clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a follower has come: the largest `seq` and how many there are up to it, the last ended attempt, a count.

    As a number it grows with every piece of news of a job, also over the follower's returns.
    """

    seq: int = 0
    attempt: int = 0
    items: int = 0
    count: int = 0

    @property
    def number(self) -> int:
        """Give it as one number."""
        return int(
            f"{self.seq}{min(self.attempt, _MOST):0{_DIGITS}d}{min(self.items, _MOST):0{_DIGITS}d}"
            f"{min(self.count, _MOST):0{_DIGITS}d}"
        )

    @classmethod
    def read(cls, text: str) -> Position | None:
        """Read a number that was given out; None for any other text."""
        if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST):
            return None
        rest, found = int(text), []
        for _ in range(3):
            rest, part = divmod(rest, _MOST + 1)
            found.append(part)
        return cls(seq=rest, attempt=found[2], items=found[1], count=found[0])

    def after(self, *, seq: int = 0, attempt: int = 0, items: int = 0) -> Position:
        """Give the next position; no part of it ever shrinks."""
        ahead = replace(
            self, seq=max(self.seq, seq), attempt=max(self.attempt, attempt), items=max(self.items, items), count=0
        )
        return ahead if ahead.number > self.number else replace(ahead, count=self.count + 1)


class Follower:
    """Tells looks apart for one reader."""

    def __init__(self, position: Position | None = None) -> None:
        self._position = position or Position()
        self._is_resumed = position is not None
        self._seen: dict[int, float] = {}
        self._after = 0
        self._state: tuple[str, ...] | None = None
        self._progress: tuple[float, str | None] | None = None
        self.has_ended = False

    @property
    def after(self) -> int:
        """Give the `seq` up to which nothing new can become visible any more: looks need not read it again."""
        return self._after

    def news(self, look: Look) -> list[News]:
        """Give what the look shows that was not told before, in order; nothing more once it has ended."""
        return [] if self.has_ended else list(self._news(look))

    def _news(self, look: Look) -> Iterator[News]:
        if look.view is None:
            yield self._end(None)
            return
        is_first = self._state is None
        if is_first:
            yield from self._state_of(look.view)
        if look.run is not None:
            yield from self._recorded(look.run, look.at)
        yield from self._attempts(look.attempts)
        yield from self._progress_of(look.view.progress)
        if not is_first:
            yield from self._state_of(look.view)
        if look.view.state in TERMINAL:
            yield self._end(look.view)

    def _state_of(self, view: JobView) -> Iterator[News]:
        state = (version_of(view), str(view.run_id), *(wait.name for wait in view.waiting_on))
        if state != self._state:
            self._state = state
            yield self._tell(NewsKind.STATE, view)

    def _progress_of(self, progress: ProgressView | None) -> Iterator[News]:
        # A body that is replayed says again what it has said before.
        said = None if progress is None else (progress.value, progress.message)
        if said not in (None, self._progress):
            self._progress = said
            yield self._tell(NewsKind.PROGRESS, progress)

    def _recorded(self, run: RunView, at: float) -> Iterator[News]:
        rows: list[StepView | LogLine] = [*run.history.steps, *run.lines]
        found = sorted(rows, key=lambda row: row.seq)
        if self._is_resumed:
            self._resume(found, at)
        for item in found:
            if item.seq > self._after and item.seq not in self._seen:
                self._seen[item.seq] = at
                kind = NewsKind.LOG if isinstance(item, LogLine) else NewsKind.STEP
                self._position = self._position.after(seq=item.seq, items=self._position.items + 1)
                yield News(kind, self._position.number, item)
        self._forget(at)

    def _resume(self, found: list[StepView | LogLine], at: float) -> None:
        """Take what the position covers as told, unless something came late: then all of it is told again."""
        self._is_resumed = False
        covered = [item.seq for item in found if item.seq <= self._position.seq]
        if len(covered) <= self._position.items:
            self._seen.update(dict.fromkeys(covered, at))

    def _forget(self, at: float) -> None:
        old = [seq for seq, seen_at in self._seen.items() if at - seen_at >= _LATE_SECONDS]
        if old:
            self._after = max(self._after, *old)
            self._seen = {seq: seen_at for seq, seen_at in self._seen.items() if seq > self._after}

    def _attempts(self, attempts: tuple[AttemptView, ...]) -> Iterator[News]:
        for attempt in attempts:
            if attempt.number > self._position.attempt:
                self._position = self._position.after(attempt=attempt.number)
                yield News(NewsKind.ATTEMPT, self._position.number, attempt)

    def _tell(self, kind: NewsKind, item: Item) -> News:
        self._position = self._position.after()
        return News(kind, self._position.number, item)

    def _end(self, view: JobView | None) -> News:
        self.has_ended = True
        return self._tell(NewsKind.END, view)


def news_document(
    news: News, job_id: JobId, *, with_value: bool, root: str = "", redact: Sequence[str] = ()
) -> Document:
    """Give what a piece of news says, as its item looks from outside."""
    if news.kind is NewsKind.END:
        return {"id": job_id, "state": news.item.state if isinstance(news.item, JobView) else None}
    match news.item:
        case JobView() as view:
            return job_document(view, with_payload=False, root=root)
        case AttemptView() as attempt:
            return attempt_document(attempt)
        case StepView() as step:
            return step_document(step, with_value=with_value, redact=redact)
        case ProgressView() as progress:
            return progress_document(progress)
        case LogLine() as line:
            return line_document(line)
        case None:
            return {}
        case _:
            assert_never(news.item)


async def look_at(driver: JobDriver, job_id: JobId, *, after: int, since: Look | None, at: float) -> Look:
    """Read a job again, no more of it than may have changed since an earlier look. Three statements at most.

    Raises:
        OutlastError: the store is away.
    """
    view = await driver.describe(job_id)
    if view is None:
        return Look(None, at=at)
    has_moved = since is None or since.view is None or version_of(view) != version_of(since.view)
    attempts = since.attempts if since is not None and not has_moved else await driver.attempts(job_id)
    run = await driver.run(job_id, after=after)
    return Look(view, attempts, run, at)
