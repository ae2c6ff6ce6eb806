"""How a chart looks from outside: columns of equal length, and job types in rows; the field names of the HTTP API.

Pure projections, as in `represent`. Percentiles are read off histograms, and so are as exact as their buckets.
"""

from __future__ import annotations

from datetime import timedelta

from ..domain.flow import ATTEMPT_BUCKETS, OUTCOMES, WAIT_BUCKETS, FlowOutcome, Tally, quantile
from .flow import FlowChart
from .render import Document

_MILLISECOND = timedelta(milliseconds=1)
_HALF, _MOST = 0.5, 0.95


def chart_document(chart: FlowChart) -> Document:
    """Give a chart; a column has null where nothing was measured."""
    tallies = [point.tally for point in chart.points]
    columns: dict[str, list[object]] = {outcome.value: [tally.of(outcome) for tally in tallies] for outcome in OUTCOMES}
    times = [_times(tally) for tally in tallies]
    columns |= {name: [each[name] for each in times] for name in _times(Tally())}
    return {
        "began_at": chart.began_at,
        "ends_at": chart.began_at + len(tallies) * chart.bucket,
        "bucket_ms": chart.bucket // _MILLISECOND,
        "series": {"at": [point.at for point in chart.points], **columns},
        "total": tally_document(chart.total),
        "job_types": [{"name": kind.name, **tally_document(kind.tally)} for kind in chart.kinds],
    }


def tally_document(tally: Tally) -> Document:
    """Give counts by outcome, percentiles, and the share of attempts that failed; null of none."""
    counted = tally.of(FlowOutcome.OK) + tally.failed
    return {
        **{outcome.value: tally.of(outcome) for outcome in OUTCOMES},
        **_times(tally),
        "failure_ratio": round(tally.failed / counted, 4) if counted else None,
    }


def _times(tally: Tally) -> dict[str, float | None]:
    return {
        "wait_p50_ms": _ms(quantile(tally.waits, WAIT_BUCKETS, _HALF)),
        "wait_p95_ms": _ms(quantile(tally.waits, WAIT_BUCKETS, _MOST)),
        "duration_p50_ms": _ms(quantile(tally.runs, ATTEMPT_BUCKETS, _HALF)),
        "duration_p95_ms": _ms(quantile(tally.runs, ATTEMPT_BUCKETS, _MOST)),
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
