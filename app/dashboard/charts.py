"""The two charts of the overview as numbers: columns for a canvas, a table for everybody, legends and a sentence.

What attempts came to and how long jobs waited is what workers counted, of the whole service; how old the oldest ready
job was is what this process counted. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..control.flow import FlowChart
from ..control.history import Sample
from ..domain.flow import WAIT_BUCKETS, FlowOutcome, Tally, quantile
from ..domain.snapshot import WorkerView
from .health import LONGEST_READY
from .query import span
from .views import plain
from .words import dur, num

_MOST_DEPLOYS = 8
_VERSION_SHOWN = 16
_MOST = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """How far back charts reach: the window and the buckets that are asked for, and both in words."""

    window: str
    bucket: str
    reach: timedelta
    last: str
    each: str


RANGES = {
    "1h": Range(window="1h", bucket="1m", reach=timedelta(hours=1), last="last hour", each="per minute"),
    "24h": Range(window="24h", bucket="30m", reach=timedelta(days=1), last="last 24 h", each="per half hour"),
    "7d": Range(window="7d", bucket="3h", reach=timedelta(days=7), last="last 7 d", each="per 3 h"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One series: its column, the state whose colour it has, its word, and what the legend says of it at rest."""

    column: str
    state: str
    word: str
    shown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One bucket of a table: when, the search for its jobs, and a text for every line."""

    at: datetime
    q: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One chart. `since` and `until` are the qualifiers that find the jobs of a bucket."""

    id: str
    title: str
    scope: str
    sentence: str
    since: str
    until: str
    lines: tuple[Line, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Charts:
    """Both charts, and what a canvas draws: columns over `at`, in seconds of Unix time; None where nothing is known."""

    figures: tuple[Figure, ...]
    series: Mapping[str, object]


_WORDS = {
    FlowOutcome.OK: ("completed", "completed"),
    FlowOutcome.FAILED: ("retried", "retried"),
    FlowOutcome.DEAD: ("dead", "dead"),
    FlowOutcome.CRASHED: ("crashed", "crashed"),
    FlowOutcome.INTERRUPTED: ("interrupted", "interrupted"),
    FlowOutcome.LEASE_LOST: ("lease_lost", "lease lost"),
}


def charts_of(
    chart: FlowChart,
    shown: Range,
    *,
    history: Sequence[Sample],
    oldest_now: float,
    workers: Sequence[WorkerView],
    now: datetime,
) -> Charts:
    """Draw what was counted. `oldest_now` is the age in seconds of the job that has been ready for longest."""
    oldest = _oldest(chart, history, now)
    oldest[-1] = max(oldest[-1] or 0.0, oldest_now)
    p95 = [_p95(point.tally) for point in chart.points]
    series: dict[str, object] = {
        "at": [round(point.at.timestamp()) for point in chart.points],
        "step": round(chart.bucket.total_seconds()),
        **{outcome.value: [point.tally.of(outcome) for point in chart.points] for outcome in _WORDS},
        "oldest": [None if each is None else round(each, 1) for each in oldest],
        "p95": [None if each is None else round(each, 4) for each in p95],
        "limit": LONGEST_READY.total_seconds(),
        "deploys": list(_deploys(chart, workers)),
    }
    waits = list(zip(oldest, p95, strict=True))
    return Charts(figures=(_outcomes(chart, shown), _waits(chart, shown, waits)), series=series)


def _outcomes(chart: FlowChart, shown: Range) -> Figure:
    lines = tuple(
        Line(column=outcome.value, state=state, word=word, shown=num(chart.total.of(outcome)))
        for outcome, (state, word) in _WORDS.items()
    )
    counts = ", ".join(f"{line.shown} {line.word}" for line in lines)
    return Figure(
        id="outcomes",
        title="Attempts by outcome",
        scope=f"{shown.last}, {shown.each}",
        sentence=f"Attempts by outcome, {shown.last}, {shown.each}: {counts}",
        since="finished",
        until="until",
        lines=lines,
        rows=tuple(
            Row(
                at=point.at,
                q=span("finished", point.at, "until", point.at + chart.bucket),
                cells=tuple(num(point.tally.of(outcome)) for outcome in _WORDS),
            )
            for point in reversed(chart.points)
        ),
    )


def _waits(chart: FlowChart, shown: Range, waits: Sequence[tuple[float | None, float | None]]) -> Figure:
    oldest, p95, limit = _said(waits[-1][0]), _said(_p95(chart.total)), _said(LONGEST_READY.total_seconds())
    return Figure(
        id="waits",
        title="Queue wait",
        scope=f"all queues, {shown.last}",
        sentence=f"Queue wait, {shown.last}: the oldest ready job waits for {oldest}, the limit is {limit};"
        f" 95 of 100 jobs began within {p95 or 'a time that is not known'}",
        since="created",
        until="before",
        lines=(
            Line(column="oldest", state="ready", word="oldest ready", shown=oldest),
            Line(column="p95", state="running", word="p95 wait", shown=p95),
        ),
        rows=tuple(
            Row(
                at=point.at,
                q=span("created", point.at, "before", point.at + chart.bucket),
                cells=tuple(_said(each) for each in wait),
            )
            for point, wait in reversed(list(zip(chart.points, waits, strict=True)))
        ),
    )


def _oldest(chart: FlowChart, history: Sequence[Sample], now: datetime) -> list[float | None]:
    """Give the worst age of every bucket, None where nothing was counted."""
    found: list[float | None] = [None] * len(chart.points)
    for sample in history:
        place = (now - timedelta(seconds=sample.ago_seconds) - chart.began_at) // chart.bucket
        if 0 <= place < len(found):
            found[place] = max(found[place] or 0.0, sample.oldest_ready_seconds)
    return found


def _deploys(chart: FlowChart, workers: Sequence[WorkerView]) -> Iterator[tuple[int, str]]:
    """Give when the first worker of a code version that is known began, where that is on the chart."""
    began: dict[str, datetime] = {}
    for worker in workers:
        began[worker.code_version] = min(worker.started_at, began.get(worker.code_version, worker.started_at))
    newest = sorted(((at, version) for version, at in began.items()), reverse=True)[:_MOST_DEPLOYS]
    for at, version in newest:
        if at >= chart.began_at:
            yield round(at.timestamp()), plain(version)[:_VERSION_SHOWN]


def _p95(tally: Tally) -> float | None:
    """Give the seconds within which 95 of 100 jobs were begun, as exact as the buckets of the histogram."""
    return quantile(tally.waits, WAIT_BUCKETS, _MOST)


def _said(seconds: float | None) -> str:
    return "" if seconds is None else dur(seconds * 1_000)
