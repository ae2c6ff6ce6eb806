"""Charts of the service: what attempts came to over an hour, a day or a week, in points that a chart can draw.

Read from counts that workers keep, never from jobs, and remembered for a moment for all who ask. Called by
`GET /v1/stats` and the dashboard.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, NoReturn

from ..domain.errors import RequestInvalid
from ..domain.flow import TIERS, FlowKind, FlowPoint, FlowQuery, FlowTier, Tally
from ..drivers.protocol import JobDriver

_MOST_KEPT = 100
_MINUTE, _QUARTER, _HOUR = TIERS
# The kinds of a window that are shown, most attempts first.
MOST_KINDS = 50
MOST_FAILING = 10


class Window(NamedTuple):
    """How far a chart reaches back, the stretches it is read from, and for how long it is good."""

    length: timedelta
    tier: FlowTier
    kept_seconds: float


WINDOWS = {
    "1h": Window(timedelta(hours=1), _MINUTE, 5.0),
    "24h": Window(timedelta(days=1), _QUARTER, 15.0),
    "7d": Window(timedelta(days=7), _HOUR, 60.0),
}
BUCKETS = {
    "1m": timedelta(minutes=1),
    "5m": timedelta(minutes=5),
    "15m": timedelta(minutes=15),
    "30m": timedelta(minutes=30),
    "1h": timedelta(hours=1),
    "3h": timedelta(hours=3),
    "6h": timedelta(hours=6),
    "1d": timedelta(days=1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowChart:
    """A window in equal buckets, oldest first, those without an attempt included; the last one is still filling.

    `kinds` are the job types with most attempts in it, `failing` those with most attempts that failed.
    """

    began_at: datetime
    bucket: timedelta
    points: tuple[FlowPoint, ...]
    total: Tally
    kinds: tuple[FlowKind, ...]
    failing: tuple[FlowKind, ...] = ()


class FlowControl:
    """Gives charts."""

    def __init__(self, driver: JobDriver, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._driver = driver
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._kept: dict[tuple[str | bool | None, ...], tuple[float, FlowChart]] = {}

    async def chart(
        self,
        window: str = "1h",
        bucket: str | None = None,
        *,
        name: str | None = None,
        queue: str | None = None,
        with_kinds: bool = True,
    ) -> FlowChart:
        """Give the chart of a window of `WINDOWS` in buckets of `BUCKETS`; of one job type or queue on demand.

        Without `with_kinds` no job types are read beside it.

        Raises:
            RequestInvalid: no such window or bucket, or one that the other does not allow.
        """
        asked = WINDOWS[window] if window in WINDOWS else _refuse("window", WINDOWS)
        length = _bucket_of(asked, bucket)
        key = (window, bucket, name, queue, with_kinds)
        async with self._lock:
            found = self._kept.get(key)
            if found is not None and self._monotonic() - found[0] <= asked.kept_seconds:
                return found[1]
            began = self._monotonic()
            chart = await self._read(asked, length, name=name, queue=queue, with_kinds=with_kinds)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = (began, chart)
            return chart

    async def _read(
        self, window: Window, bucket: timedelta, *, name: str | None, queue: str | None, with_kinds: bool
    ) -> FlowChart:
        seconds = bucket.total_seconds()
        now = await self._driver.database_time()
        last = datetime.fromtimestamp(now.timestamp() // seconds * seconds, tz=now.tzinfo)
        count = window.length // bucket
        began = last - (count - 1) * bucket
        query = FlowQuery(tier=window.tier, since=began, name=name, queue=queue)
        tallies = [Tally()] * count
        for point in await self._driver.flow(query):
            place = min((point.at - began) // bucket, count - 1)
            tallies[place] += point.tally
        found = await self._driver.flow_kinds(query) if with_kinds else ()
        kinds = sorted(found, key=lambda kind: (-sum(kind.tally.counts), kind.name))
        failing = sorted((kind for kind in kinds if kind.tally.failed), key=lambda kind: -kind.tally.failed)
        return FlowChart(
            began_at=began,
            bucket=bucket,
            points=tuple(FlowPoint(began + place * bucket, tally) for place, tally in enumerate(tallies)),
            total=sum(tallies, Tally()),
            kinds=tuple(kinds[:MOST_KINDS]),
            failing=tuple(failing[:MOST_FAILING]),
        )


def _bucket_of(window: Window, bucket: str | None) -> timedelta:
    if bucket is None:
        return window.tier.length
    length = BUCKETS[bucket] if bucket in BUCKETS else _refuse("bucket", BUCKETS)
    if length < window.tier.length or length >= window.length:
        fitting = [word for word, each in BUCKETS.items() if window.tier.length <= each < window.length]
        raise RequestInvalid(
            f"a window of {window.length} has no buckets of {length}",
            fix=f"ask for a bucket of {', '.join(fitting)}, or leave it out",
            errors=[{"in": "query", "pointer": "/bucket", "detail": f"must be one of {', '.join(fitting)}"}],
        )
    return length


def _refuse(field: str, words: dict[str, Window] | dict[str, timedelta]) -> NoReturn:
    raise RequestInvalid(
        f"there is no such {field}",
        fix=f"ask for one of {', '.join(words)}",
        errors=[{"in": "query", "pointer": f"/{field}", "detail": f"must be one of {', '.join(words)}"}],
    )
