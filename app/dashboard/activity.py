"""The bars above the list of jobs: how many attempts ended when, each a link that narrows the search to its stretch.

Read from what workers counted, by job type and queue; never from jobs, so it costs the same however many there are.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ..control.flow import FlowChart
from ..domain.flow import Tally
from .charts import RANGES, Range
from .query import Asked, span
from .words import num

_HIGH = 36.0
_BASE = 40.0
_MOST_TICKS = 6
_WHOLE = 100.0
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One stretch: where it is in percent, how high in pixels, the search for what ended in it, and a sentence."""

    x: float
    y: float
    height: float
    q: str
    label: str
    is_asked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """All stretches, `width` percent each, with some times below, and what is counted in words."""

    words: str
    width: float
    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]


def range_of(asked: Asked, now: datetime) -> Range:
    """Give how far back is drawn: as far as the search reaches, a day where it does not say."""
    since = max((at for at in (asked.created_after, asked.finished_after) if at is not None), default=now - _DAY)
    return next((shown for shown in RANGES.values() if now - since <= shown.reach), RANGES["7d"])


def activity_of(chart: FlowChart, shown: Range, asked: Asked) -> Activity:
    """Draw a chart of one job type or queue, or of all."""
    width = _WHOLE / len(chart.points)
    most = max((_ended(point.tally) for point in chart.points), default=0) or 1
    bars = []
    for place, point in enumerate(chart.points):
        ends = point.at + chart.bucket
        count, bad = _ended(point.tally), point.tally.failed
        times, height = span("finished", point.at, "until", ends), round(_HIGH * count / most, 2)
        failed = f", {num(bad)} failed" if bad else ""
        bars.append(
            Bar(
                x=round(place * width, 2),
                y=round(_BASE - height, 2),
                height=height,
                q=asked.within(times),
                label=f"{_when(point.at, shown)} to {ends:%H:%M}: {num(count)} attempts ended{failed}",
                is_asked=(asked.finished_after, asked.finished_before) == (point.at, ends),
            )
        )
    every = -(-len(chart.points) // _MOST_TICKS)
    ticks = tuple((bars[i].x, _when(chart.points[i].at, shown)) for i in range(0, len(bars), every))
    of = "".join(f", {word} {value}" for word, value in (("type", asked.name), ("queue", asked.queue)) if value)
    words = f"Attempts that ended, {shown.each}, {shown.last}{of}"
    return Activity(words=words, width=round(width, 3), bars=tuple(bars), ticks=ticks)


def _ended(tally: Tally) -> int:
    return sum(tally.counts)


def _when(at: datetime, shown: Range) -> str:
    return f"{at:%a %H:%M}" if shown.reach > _DAY else f"{at:%H:%M}"
