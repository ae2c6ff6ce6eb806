"""Queues: how deep, how old, who paused them; pause, resume, and how many of their jobs may run or wait."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from starlette.responses import Response

from ...control.flow_documents import tally_document
from ...domain.errors import RequestInvalid
from ...domain.queue import KEEP, QueueChange, Setting
from ...domain.snapshot import QueueView
from ..panels import panel_of
from ..visit import OPERATE, Form, Visit

_MOST_MINUTES = 60 * 24 * 365


async def page(visit: Visit) -> Response:
    """Give every queue, as they were counted a moment ago for all who look."""
    queues = await visit.told((await visit.services.overview.stats()).queues)
    workers = await visit.services.fleet.workers()
    live = [worker for worker in workers if worker.closed_at is None and worker.lost_at is None]
    served = {queue for worker in live for queue in worker.queues}
    return visit.page(
        "queues.html",
        title="Queues",
        at="queues",
        queues=sorted(
            queues, key=lambda queue: (queue.paused_at is None, -(queue.oldest_ready_seconds or 0), queue.name)
        ),
        served=served,
        may_act=visit.may(OPERATE),
    )


async def one(visit: Visit) -> Response:
    """Give one queue with its controls."""
    queue = await visit.told(await _counted(visit, visit.part("queue")))
    workers = await visit.services.fleet.workers()
    serving = [
        worker
        for worker in workers
        if worker.closed_at is None and worker.lost_at is None and queue.name in worker.queues
    ]
    # A visitor of one tenant is told of no other one's weight.
    weights = {tenant: weight for tenant, weight in queue.weights.items() if visit.tenant in {None, tenant}}
    return visit.page(
        "queue.html",
        title=queue.name,
        at="queues",
        queue=queue,
        weights=weights,
        serving=serving,
        hour=await panel_of(_hour(visit, queue.name)),
        may_act=visit.may(OPERATE),
    )


async def _counted(visit: Visit, name: str) -> QueueView:
    counted = (await visit.services.overview.stats()).queues
    return next((queue for queue in counted if queue.name == name), None) or await visit.services.queues.find(name)


class Hour(NamedTuple):
    """What attempts of a queue came to in an hour: ended by the minute, all that ended, that failed, p95 of waits."""

    ended: list[int]
    total: int
    failed: int
    p95_ms: object


async def _hour(visit: Visit, queue: str) -> Hour:
    chart = await visit.services.flow.chart("1h", queue=queue, with_kinds=False)
    ended = [sum(point.tally.counts) for point in chart.points]
    total = tally_document(chart.total)
    return Hour(ended, sum(ended), chart.total.failed, total["wait_p95_ms"])


async def pause(visit: Visit) -> Response:
    """Stop claims from a queue, for some minutes or until somebody resumes it."""
    form, name = await visit.form(), visit.part("queue")
    visit.seen.visitor.check_queue(name)
    by, minutes = visit.acting(form), form.number("minutes")
    if minutes is not None and not 0 < minutes <= _MOST_MINUTES:
        raise RequestInvalid(
            "minutes is out of range", fix=f"write 1 to {_MOST_MINUTES}, or nothing", pointer="/minutes"
        )
    lasts = None if minutes is None else timedelta(minutes=minutes)
    await visit.services.queues.pause(name, by=by.actor, reason=by.reason, lasts=lasts)
    visit.services.overview.forget()
    return visit.go(f"/queues/{name}", said="Paused: running jobs go on, none is claimed")


async def resume(visit: Visit) -> Response:
    """Let claims begin again."""
    form, name = await visit.form(), visit.part("queue")
    visit.seen.visitor.check_queue(name)
    by = visit.acting(form)
    await visit.services.queues.resume(name, by=by.actor, reason=by.reason)
    visit.services.overview.forget()
    return visit.go(f"/queues/{name}", said="Open: jobs are claimed again")


async def limit(visit: Visit) -> Response:
    """Set how many jobs of a queue may run, and how many may wait; an empty field takes the limit away."""
    form, name = await visit.form(), visit.part("queue")
    visit.seen.visitor.check_queue(name)
    by = visit.acting(form)
    change = QueueChange(concurrency=_setting(form, "concurrency"), max_depth=_setting(form, "max_depth"))
    await visit.services.queues.limit(name, change, by=by.actor, reason=by.reason)
    visit.services.overview.forget()
    return visit.go(f"/queues/{name}", said="Limits set")


def _setting(form: Form, name: str) -> Setting:
    return form.number(name) if name in form else KEEP
