"""Who works, on which code, and who leaves: drains with the time they have left, and what past ones cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from starlette.responses import Response

from ...control.fleet import LARGEST_WORKER_ID
from ...control.jobs import ListQuery
from ...control.render import Document
from ...domain.job import WorkerId
from ...domain.snapshot import JobView, WorkerView
from ..countdown import Countdown, countdown_of
from ..visit import OPERATE, Visit
from ..words import phase

# Of so many that leave at once it is shown what they hold.
_MOST_LEAVING = 16
_MOST_HELD = 50
_REPORTS = 20
PHASES = ("accept", "inflight", "close")
_STALE_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A worker under way out: the phases behind and before it, the time left, and what it holds."""

    worker: WorkerView
    left_ms: float | None
    countdown: Countdown | None
    at: int
    runs: Sequence[JobView]


async def page(visit: Visit) -> Response:
    """Give the fleet."""
    workers = await visit.told(await visit.services.fleet.workers())
    live = [worker for worker in workers if worker.closed_at is None and worker.lost_at is None]
    newest = max(live, key=lambda worker: worker.started_at).code_version if live else None
    held = {worker.id: await _held(visit, worker.id) for worker in _draining(live)[:_MOST_LEAVING]}
    before = visit.asked_number("before")
    reports = await visit.services.deploys.list(
        limit=_REPORTS,
        before=None if before is None else min(before, LARGEST_WORKER_ID),
        tenant=visit.tenant,
    )
    reports = await visit.told(reports)
    return visit.page(
        "workers.html",
        title="Workers",
        at="workers",
        workers=sorted(workers, key=lambda worker: (_rank(worker), -int(worker.id))),
        standing={worker.id: status_of(worker) for worker in workers},
        live=sorted(live, key=lambda worker: (worker.code_version != newest, -int(worker.id))),
        versions=Counter(worker.code_version for worker in live),
        newest=newest,
        leaving=[_leaving(worker, held.get(worker.id, ()), visit.now) for worker in _draining(live)],
        phases=PHASES,
        here=await visit.told(visit.services.drain.here(tenant=visit.tenant)),
        reports=reports,
        cost=_cost(reports),
        may_act=visit.may(OPERATE),
    )


async def drain(visit: Visit) -> Response:
    """Ask a worker to leave; it hears of it at its next renewal."""
    form = await visit.form()
    by = visit.acting(form)
    await visit.services.fleet.drain(visit.part("worker_id"), by=by.actor, reason=by.reason)
    return visit.go("/workers", said=f"Worker {visit.part('worker_id')} is asked to drain")


def status_of(worker: WorkerView) -> tuple[str, str]:
    """Give a worker's state, and the word for it."""
    if worker.is_lost:
        return "lost", "lost"
    if worker.has_left:
        return "cancelled", "left"
    if worker.drain_phase is not None:
        return "draining", phase(worker.drain_phase)
    if worker.drain_asked_at is not None:
        return "draining", "asked to drain"
    if worker.heartbeat_age_ms > _STALE_MS:
        return "stale", "heartbeat late"
    return "serving", "serving"


def _draining(live: Sequence[WorkerView]) -> list[WorkerView]:
    return [worker for worker in live if worker.drain_phase]


async def _held(visit: Visit, worker: WorkerId) -> Sequence[JobView]:
    """Give what a worker runs, the newest first; jobs that others run are not read for it."""
    found = await visit.services.jobs.list(ListQuery(worker_id=worker, tenant=visit.tenant, limit=_MOST_HELD))
    return [job for job in found.items if job.claim is not None]


def _rank(worker: WorkerView) -> int:
    return ["draining", "stale", "serving", "lost", "cancelled"].index(status_of(worker)[0])


def _leaving(worker: WorkerView, runs: Sequence[JobView], now: datetime) -> Leaving:
    ends = worker.drain_deadline_at
    phase = worker.drain_phase or PHASES[0]
    return Leaving(
        worker=worker,
        left_ms=None if ends is None else max(0.0, (ends - now).total_seconds() * 1_000),
        countdown=countdown_of(worker, now),
        at=PHASES.index(phase) if phase in PHASES else 0,
        runs=runs,
    )


def _cost(reports: Document) -> Counter[str]:
    """Sum what the shown drains came to."""
    total: Counter[str] = Counter()
    items = reports["items"]
    assert isinstance(items, list)  # noqa: S101 - a document of ours
    for report in items:
        for fate in ("completed", "interrupted", "abandoned", "other"):
            total[fate] += report[fate]
    return total
