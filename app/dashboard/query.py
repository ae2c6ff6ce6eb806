"""What a list of jobs is asked for: qualifiers such as `queue:mail`, in the address, so that it can be passed on.

A qualifier that means nothing is said to be so and not dropped. Pure; the controls get a filter of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from ..domain.bulk import JobFilter
from ..domain.job import JobId, WorkerId
from ..domain.state import LIVE, State
from ..domain.text import read_uuid

_SPANS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_SPAN = re.compile(r"([1-9][0-9]{0,4})([mhdw])")
_LONGEST = 512
_TAKEN = 128
# What bulk operations can be asked for; a search that says more selects nothing by itself.
_OF_BULK = frozenset({"state", "queue", "name", "created", "before"})
_LARGEST_WORKER = 2**31 - 1
_STATES: dict[str, frozenset[State]] = {
    "live": LIVE,
    "all": frozenset(),
    **{state.value: frozenset({state}) for state in State},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A search: its qualifiers as they are written, what they mean, and what is wrong with others."""

    terms: tuple[tuple[str, str], ...] = ()
    states: frozenset[State] = frozenset()
    name: str | None = None
    queue: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None
    tag: str | None = None
    error: str | None = None
    key: str | None = None
    worker: WorkerId | None = None
    job_id: JobId | None = None
    wrong: tuple[str, ...] = field(default=())

    @property
    def text(self) -> str:
        """Give it as it is written in an address."""
        return " ".join(f"{name}:{value}" for name, value in self.terms)

    @property
    def state(self) -> str:
        """Give the tab it belongs to."""
        return next((value for name, value in self.terms if name == "state"), "all")

    @property
    def is_everything(self) -> bool:
        """Say whether it leaves nothing out."""
        return not self.terms

    @property
    def words(self) -> str:
        """Say it to people."""
        return self.text or "every job"

    @property
    def beyond_bulk(self) -> tuple[str, ...]:
        """Give the qualifiers that no bulk operation knows."""
        return tuple(name for name, _ in self.terms if name not in _OF_BULK)

    def without(self, name: str) -> str:
        """Give the search without one of its qualifiers."""
        return " ".join(f"{term}:{value}" for term, value in self.terms if term != name)

    def within(self, times: str) -> str:
        """Give the search over another stretch of time."""
        rest = (f"{name}:{value}" for name, value in self.terms if name not in TIMES)
        return " ".join((*rest, times))

    def with_state(self, state: str) -> str:
        """Give the same search over another state."""
        rest = self.without("state")
        return rest if state == "all" else f"state:{state} {rest}".strip()

    def filter(self) -> JobFilter:
        """Give it to the controls of bulk operations; only where nothing is `beyond_bulk`."""
        return JobFilter(
            states=self.states,
            name=self.name,
            queue=self.queue,
            created_after=self.created_after,
            created_before=self.created_before,
        )


def span(since: str, begins: datetime, until: str, ends: datetime) -> str:
    """Give the qualifiers of a stretch of time, to the second."""
    return f"{since}:{_second(begins)} {until}:{_second(ends)}"


def read_query(texts: Sequence[str], now: datetime) -> Asked:
    """Read what was typed; `now` is what spans such as `created:24h` count back from."""
    asked = Asked()
    for word in " ".join(texts)[:_LONGEST].split():
        asked = _with(asked, word, now)
    return asked


def _with(asked: Asked, word: str, now: datetime) -> Asked:
    found = read_uuid(word)
    if found is not None:
        return replace(asked, job_id=JobId(found))
    name, colon, value = word.partition(":")
    if not colon:
        return _wrong(asked, f"{word[:64]} says no field; write name:{word[:64]} for a job type")
    if name not in KNOWN:
        return _wrong(asked, f"{name[:32]}: is not a field. Known: {', '.join(KNOWN)}")
    if not value or len(value) > _TAKEN:
        return _wrong(asked, f"{name}: needs a value of at most {_TAKEN} characters")
    return _meaning(replace(asked, terms=(*(term for term in asked.terms if term[0] != name), (name, value))), now)


def _meaning(asked: Asked, now: datetime) -> Asked:
    """Give what the last term means; one that means nothing is taken out again."""
    name, value = asked.terms[-1]
    term = _TERMS[name]
    meant = term.read(value, now)
    if meant is None:
        told = f"{name}:{value[:32]} is not known; it takes {term.takes}"
        return _wrong(replace(asked, terms=asked.terms[:-1]), told)
    change: dict[str, Any] = {term.field: meant}  # what the table says fits
    return replace(asked, **change)


def _wrong(asked: Asked, why: str) -> Asked:
    return replace(asked, wrong=(*asked.wrong, why))


def _second(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _instant(text: str, now: datetime) -> datetime | None:
    span = _SPAN.fullmatch(text)
    if span is not None:
        return now - int(span[1]) * _SPANS[span[2]]
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):  # no time, or one that is none in UTC
        return None


def _word(text: str, _now: datetime) -> str:
    return text


def _states(text: str, _now: datetime) -> frozenset[State] | None:
    return _STATES.get(text)


def _worker(text: str, _now: datetime) -> WorkerId | None:
    fits = text.isascii() and text.isdecimal() and int(text) <= _LARGEST_WORKER
    return WorkerId(int(text)) if fits else None


class _Term(NamedTuple):
    """What a qualifier says: which field, how its value is read (None for one that does not fit), what it takes."""

    field: str
    read: Callable[[str, datetime], object | None]
    takes: str


_AN_INSTANT = "24h, 7d, or a time such as 2026-12-24T18:00Z"
_TERMS = {
    "state": _Term("states", _states, ", ".join(_STATES)),
    "queue": _Term("queue", _word, "a queue"),
    "name": _Term("name", _word, "a job type"),
    "tag": _Term("tag", _word, "a tag"),
    "error": _Term("error", _word, "a code"),
    "key": _Term("key", _word, "a key"),
    "worker": _Term("worker", _worker, "the number of a worker"),
    "created": _Term("created_after", _instant, _AN_INSTANT),
    "before": _Term("created_before", _instant, _AN_INSTANT),
    "finished": _Term("finished_after", _instant, _AN_INSTANT),
    "until": _Term("finished_before", _instant, _AN_INSTANT),
}
KNOWN = tuple(_TERMS)
# Since when, and until when: of enqueueing, and of ending.
TIMES = tuple(name for name, term in _TERMS.items() if term.read is _instant)
