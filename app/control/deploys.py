"""What deploys cost: per drained worker what was cut, finished and abandoned, and how soon it was taken up again.

Read from the reports that workers leave. Called by the HTTP routes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby

from ..domain.drain import CUT, DrainView, RunAgain
from ..domain.job import WorkerId
from ..drivers.protocol import JobDriver
from .render import Document

# Of a worker that held a great many runs only the first that were cut are listed; the counts are of all.
MOST_LISTED = 200
_FATES = ("completed", "interrupted", "abandoned", "other")


class DeployControl:
    """Reads the reports of drained workers."""

    def __init__(self, driver: JobDriver) -> None:
        self._driver = driver

    async def list(self, *, limit: int, before: int | None, tenant: str | None = None) -> Document:
        """Give the newest reports, those of worker ids below `before`, and which job types never read their signal.

        Job types and runs are only those of one tenant, if named; a report's own counts are of all.
        """
        views = await self._driver.drains(limit=limit, before=None if before is None else WorkerId(before))
        ignored = Counter(one.run.name for view in views for one in _of(tenant, view.runs) if one.run.has_ignored)
        ranked = sorted(ignored.items(), key=lambda entry: (-entry[1], entry[0]))
        return {
            "items": [_deploy_document(view, tenant) for view in views],
            "never_acknowledged": [{"job_type": name, "count": count} for name, count in ranked],
            "next_before": str(views[-1].worker_id) if len(views) == limit else None,
        }


def _of(tenant: str | None, runs: Sequence[RunAgain]) -> Sequence[RunAgain]:
    return runs if tenant is None else [one for one in runs if one.tenant == tenant]


def _deploy_document(view: DrainView, tenant: str | None) -> Document:
    shown = _of(tenant, view.runs)
    cut = [one for one in shown if one.run.fate in CUT]
    by_name = sorted(shown, key=lambda one: one.run.name)
    return {
        "worker_id": str(view.worker_id),
        "host": view.host,
        "code_version": view.code_version,
        "reason": view.reason,
        "started_at": view.started_at,
        "ended_at": view.ended_at,
        **_counts(view.runs),
        "job_types": [
            {"job_type": name, **_counts(list(runs))} for name, runs in groupby(by_name, key=lambda one: one.run.name)
        ],
        "cut": [_cut_document(one) for one in cut[:MOST_LISTED]],
    }


def _counts(runs: Sequence[RunAgain]) -> Document:
    fates = Counter(one.run.fate for one in runs)
    waits = sorted(_milliseconds(one.claimed_after) for one in runs if one.claimed_after is not None)
    return {
        **{fate: fates[fate] for fate in _FATES},
        "never_acknowledged": sum(one.run.has_ignored for one in runs),
        "claimed_again": len(waits),
        "claimed_again_ms_median": waits[len(waits) // 2] if waits else None,
        "claimed_again_ms_max": waits[-1] if waits else None,
    }


def _cut_document(one: RunAgain) -> Document:
    return {
        "job_id": str(one.run.job_id),
        "job_type": one.run.name,
        "fate": one.run.fate,
        "acknowledged": not one.run.has_ignored,
        "claimed_again_ms": None if one.claimed_after is None else _milliseconds(one.claimed_after),
    }


def _milliseconds(span: timedelta) -> int:
    return max(0, span // timedelta(milliseconds=1))
