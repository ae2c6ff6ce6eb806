"""A job's timeline as rows of marks in percent: a lane of attempts, then one row per step. Pure.

Memoised steps are marked where an attempt read them, a failed or interrupted step from where the attempt was last seen
to its end. What a run waits for is a line with its length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ..control.timeline import Span, SpanKind, Timeline
from ..domain.outcome import OutcomeKind
from ..domain.step import StepKind
from .axis import Axis, Stretch, axis_of
from .words import dur

MOST_ROWS = 200
_ROOM_FOR_TEXT = 7.0
_MEMO_WIDTH = 1.8
_LEAST_WIDTH = 0.6
_FAILED = frozenset({OutcomeKind.RETRIED, OutcomeKind.DEAD_LETTERED, OutcomeKind.CRASHED})
_CUT = frozenset({OutcomeKind.INTERRUPTED, OutcomeKind.LEASE_LOST, OutcomeKind.CANCELLED})
_WAITS = {StepKind.SLEEP: "sleep", StepKind.EVENT: "wait", StepKind.CALL: "wait"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One mark in a row. `kind` is `bar`, `att` or `line`; `text` is written beside or on it where it fits."""

    kind: str
    state: str
    x: float
    width: float
    title: str
    text: str = ""
    href: str | None = None
    is_open: bool = False

    @property
    def end(self) -> float:
        """Give where it ends."""
        return round(self.x + self.width, 2)

    @property
    def middle(self) -> float:
        """Give where its text is centred."""
        return round(self.x + self.width / 2, 2)


@dataclass(slots=True, kw_only=True)
class Row:
    """A step, or a wait, with its marks over all attempts."""

    name: str
    kind: str
    marks: list[Mark] = field(default_factory=list)
    took: str = ""
    state: str = "pending"

    @property
    def label(self) -> str:
        """Say the row in a sentence."""
        return f"{self.name}: " + ("; ".join(mark.title for mark in self.marks) or "not reached")

    @property
    def has_links(self) -> bool:
        """Say whether any of its marks leads somewhere."""
        return any(mark.href for mark in self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """The picture: bands of attempts behind all rows, the lane, the rows, and times along the axis."""

    ticks: tuple[tuple[float, datetime], ...]
    bands: tuple[Stretch, ...]
    lane: tuple[Mark, ...]
    rows: tuple[Row, ...]
    whole_ms: float
    work_ms: float
    is_open: bool
    is_cut: bool

    @property
    def label(self) -> str:
        """Say the lane in a sentence."""
        return "Job: " + (", ".join(mark.title for mark in self.lane) or "nothing has happened yet")


def waterfall_of(
    timeline: Timeline, *, created: datetime, ended: datetime | None, now: datetime, is_folded: bool
) -> Waterfall:
    """Draw a timeline. `ended` is None while the job may still go on."""
    spans = timeline.spans
    seen = [at for span in spans for at in (span.started_at, span.ended_at) if at is not None]
    last = max([*seen, created, ended or now])
    ran = [span for span in spans if span.kind is SpanKind.ATTEMPT]
    axis = axis_of(
        [(span.started_at, span.ended_at or last) for span in ran],
        first=min([*seen, created]),
        last=last,
        is_folded=is_folded,
    )
    return Waterfall(
        ticks=tuple(axis.ticks()),
        bands=tuple(each for each in axis.stretches if each.is_attempt),
        lane=tuple(sorted([*_attempts(axis, ran, last), *_idle(axis, spans, last)], key=lambda mark: mark.x)),
        rows=tuple(_rows(axis, spans, ran, last)),
        whole_ms=_ms(axis.stretches[0].start, last),
        work_ms=sum(_ms(span.started_at, span.ended_at or last) for span in ran),
        is_open=ended is None,
        is_cut=timeline.is_cut,
    )


def _ms(start: datetime, end: datetime) -> float:
    return max(0.0, (end - start).total_seconds() * 1_000)


def _attempts(axis: Axis, ran: Sequence[Span], last: datetime) -> Iterator[Mark]:
    for span, band in zip(ran, (each for each in axis.stretches if each.is_attempt), strict=True):
        x, width = round(band.x, 2), round(band.width, 2)
        took = dur(_ms(span.started_at, span.ended_at or last))
        state = "running" if span.outcome is None else span.outcome.value
        yield Mark(
            kind="att",
            state=state,
            x=x,
            width=width,
            title=f"attempt {span.claim_no} {state.replace('_', '-')}, {took}",
            text=f"{span.claim_no}" + (f" · {took}" if width >= _ROOM_FOR_TEXT + 3 else ""),
            href=f"#attempt-{span.claim_no}",
            is_open=span.ended_at is None,
        )


def _idle(axis: Axis, spans: Sequence[Span], last: datetime) -> Iterator[Mark]:
    for stretch in axis.stretches:
        if stretch.is_attempt:
            continue
        state = _state_of(stretch, spans, last)
        took = dur(_ms(stretch.start, stretch.end))
        word = {"ready": "ready for", "delayed": "delayed", "sleep": "slept", "wait": "waited", "held": "held for"}[
            state
        ]
        yield Mark(
            kind="line",
            state=state,
            x=round(stretch.x + 0.3, 2),
            width=round(max(0.2, stretch.width - 0.6), 2),
            title=f"{word} {took}",
            text=took if stretch.width >= _ROOM_FOR_TEXT else "",
        )


def _state_of(stretch: Stretch, spans: Sequence[Span], last: datetime) -> str:
    """Say what a stretch between attempts was for the most part."""
    shares: defaultdict[str, float] = defaultdict(float)
    for span in spans:
        common = _ms(max(span.started_at, stretch.start), min(span.ended_at or last, stretch.end))
        if span.kind is SpanKind.QUEUE:
            shares["held" if span.name == "held" else "ready"] += common
        elif span.kind is SpanKind.WAIT and span.step_kind is not None:
            name = _WAITS[span.step_kind]
            shares[name] = max(shares[name], common)
    best = max(shares, key=lambda name: shares[name], default="delayed")
    return best if shares.get(best, 0.0) >= _ms(stretch.start, stretch.end) / 2 else "delayed"


def _rows(axis: Axis, spans: Sequence[Span], ran: Sequence[Span], last: datetime) -> Iterator[Row]:
    rows: dict[str, Row] = {}
    seen: dict[int, datetime] = {span.claim_no or 0: span.started_at for span in ran}
    for span in spans:
        if span.kind in {SpanKind.QUEUE, SpanKind.ATTEMPT}:
            continue
        kind = "step" if span.step_kind is None else span.step_kind.value
        row = rows.setdefault(span.name, Row(name=span.name, kind=kind))
        mark = _mark(axis, span, last)
        row.marks.append(mark)
        if span.kind is not SpanKind.REPLAY:
            row.took = dur(_ms(span.started_at, span.ended_at or last))
            row.state = "done" if span.ended_at is not None else "pending"
            if span.claim_no is not None and span.ended_at is not None and span.kind is SpanKind.STEP:
                seen[span.claim_no] = max(seen.get(span.claim_no, span.ended_at), span.ended_at)
    for span in ran:
        if span.reached is not None and span.ended_at is not None and (span.outcome in _FAILED or span.outcome in _CUT):
            row = rows.setdefault(span.reached, Row(name=span.reached, kind="run"))
            row.marks.append(_broken(axis, span, seen.get(span.claim_no or 0, span.started_at)))
            row.state = "failed" if span.outcome in _FAILED and row.state == "pending" else row.state
    for row in rows.values():
        row.marks.sort(key=lambda mark: mark.x)
    yield from rows.values()


def _mark(axis: Axis, span: Span, last: datetime) -> Mark:
    x, href = axis.x(span.started_at), None if span.claim_no is None else f"#attempt-{span.claim_no}"
    if span.kind is SpanKind.REPLAY:
        title = f"read from memory in attempt {span.claim_no}"
        return Mark(kind="bar", state="memo", x=x, width=_MEMO_WIDTH, title=title, href=href)
    end, took = axis.x(span.ended_at or last), dur(_ms(span.started_at, span.ended_at or last))
    width = round(max(_LEAST_WIDTH, end - x), 2)
    if span.kind is SpanKind.WAIT:
        state = "wait" if span.step_kind is None else _WAITS.get(span.step_kind, "wait")
        word = "slept" if state == "sleep" else "waited"
        what = f" for {span.event}" if span.event else ""
        text = took if width >= _ROOM_FOR_TEXT else ""
        title = f"{word} {took}{what}" + ("" if span.ended_at else ", not over yet")
        state = "failed" if span.has_failed else state
        return Mark(kind="line", state=state, x=x, width=width, title=title, text=text, is_open=span.ended_at is None)
    title = f"finished in attempt {span.claim_no} in {took}"
    return Mark(kind="bar", state="ok", x=x, width=width, title=title, href=href)


def _broken(axis: Axis, span: Span, since: datetime) -> Mark:
    x, end = axis.x(since), axis.x(span.ended_at or since)
    took = dur(_ms(since, span.ended_at or since))
    code = (span.error.code or span.error.type) if span.error is not None else ""
    is_failed, width = span.outcome in _FAILED, round(max(_LEAST_WIDTH, end - x), 2)
    said = (
        f"failed in attempt {span.claim_no} after {took}"
        if is_failed
        else f"cut in attempt {span.claim_no}, not counted"
    )
    return Mark(
        kind="bar",
        state="failed" if is_failed else "interrupted",
        x=x,
        width=width,
        title=said + (f": {code}" if code and is_failed else ""),
        text=code if is_failed and width >= 1.1 * len(code) else "",
        href=f"#attempt-{span.claim_no}",
    )
