"""The first page: the verdict and its reasons, how much is where, which queues need a look, who works, what is next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from starlette.responses import Response

from ...control.flow import FlowChart
from ...control.overview import COUNTED_ENDED
from ...control.render import Document
from ...domain.audit import AuditQuery, AuditView, Target
from ...domain.flow import FlowKind, FlowOutcome, Tally
from ...domain.outbox import OutboxView
from ...domain.snapshot import DeadGroup, QueueView, Stats, WorkerView
from ...domain.state import LIVE, State
from ..charts import RANGES, Charts, Range, charts_of
from ..health import MOST_SHOWN, health_of
from ..panels import Panel, panel_of
from ..visit import OPERATE, Visit
from ..words import dur

_TILES = (State.READY, State.RUNNING, State.DELAYED, State.SUSPENDED, State.HELD, State.DEAD)
_QUEUES = 8
_KINDS = 5
_FIRES = 5
_CHANGES = 5
_CHANGED_LATELY = timedelta(hours=3)
_LOOKED_AT = 50
# What is done to single jobs, and who was turned away, is for the audit's own page.
_OF_ONE = frozenset({Target.JOB.value, Target.AUTH.value})


class Failing(NamedTuple):
    """A job type whose attempts failed: what most of its dead died of, and how many failed, ended and were the last."""

    name: str
    error: str
    failed: int
    ended: int
    dead: int


class Rest(NamedTuple):
    """What is shown beside the counts and the dead letters, and is read while these are counted."""

    workers: Sequence[WorkerView]
    types: list[str]
    day: Panel[FlowChart]
    chart: Panel[FlowChart]
    changes: Panel[list[AuditView]]
    fires: Panel[list[tuple[str, Document]]]
    outbox: Panel[OutboxView]


async def page(visit: Visit) -> Response:
    """Give the overview. The dear reads go on side by side; what is remembered of them costs nothing."""
    overview = visit.services.overview
    shown = RANGES.get(visit.asked("range"), RANGES["1h"])
    async with asyncio.TaskGroup() as group:
        counting = group.create_task(panel_of(overview.stats()))
        grouping = group.create_task(panel_of(overview.dead_letters(tenant=visit.tenant)))
        reading = group.create_task(panel_of(_rest(visit, shown)))
    stats, dead, rest = counting.result().needed(), grouping.result(), reading.result().needed()
    stats = replace(stats, queues=await visit.told(stats.queues))
    live = [worker for worker in rest.workers if worker.closed_at is None and worker.lost_at is None]
    day = rest.day.value
    return visit.page(
        "overview.html",
        title="Overview",
        at="overview",
        health=health_of(stats, rest.workers, dead.value or (), visit.now),
        health_most=MOST_SHOWN,
        tiles=_tiles(stats, capacity=sum(worker.concurrency for worker in live)),
        is_empty=not any(stats.by_state.values()),
        queues=sorted(stats.queues, key=_harm, reverse=True)[:_QUEUES],
        queues_all=len(stats.queues),
        served={queue for worker in live for queue in worker.queues},
        failed=None if day is None else _failed(day.total),
        failing_error=rest.day.error,
        failing=_failing(day, dead.value or ()),
        live=live,
        draining=[worker for worker in live if worker.drain_phase],
        running=sum(worker.running for worker in live),
        capacity=sum(worker.concurrency for worker in live),
        ranges=RANGES,
        shown=shown,
        charts=_charts(visit, shown, rest, _oldest(stats)),
        types=rest.types,
        changes=rest.changes,
        fires=rest.fires,
        outbox=rest.outbox,
    )


async def _rest(visit: Visit, shown: Range) -> Rest:
    services = visit.services
    return Rest(
        workers=await services.fleet.workers(),
        types=[each.name for each in await services.catalogue.all()],
        day=await panel_of(services.flow.chart("24h", RANGES["24h"].bucket)),
        # Of a day it is the chart above, which is remembered.
        chart=await panel_of(services.flow.chart(shown.window, shown.bucket, with_kinds=shown == RANGES["24h"])),
        changes=await panel_of(_changes(visit)),
        fires=await panel_of(_fires(visit)),
        outbox=await panel_of(services.outbox.view(1, tenant=visit.tenant)),
    )


def _tiles(stats: Stats, *, capacity: int) -> list[tuple[str, int, bool, str]]:
    """Give state, figure, whether it is capped, and a line of context."""
    oldest = _oldest(stats)
    context = {
        State.READY: f"oldest {dur(oldest * 1_000)}" if oldest else "none waits",
        State.RUNNING: f"capacity {capacity:,}",
        State.DELAYED: "due later, or retries",
        State.SUSPENDED: "wait by design",
        State.HELD: "need a person",
        State.DEAD: "budget spent",
    }
    tiles = []
    for state in _TILES:
        count = stats.by_state.get(state, 0)
        is_capped = state not in LIVE and count >= COUNTED_ENDED
        tiles.append((state.value, count, is_capped, context[state]))
    return tiles


def _charts(visit: Visit, shown: Range, rest: Rest, oldest: float) -> Panel[Charts]:
    if rest.chart.value is None:
        return Panel(error=rest.chart.error)
    history = visit.services.overview.history(shown.reach.total_seconds())
    return Panel(
        value=charts_of(
            rest.chart.value, shown, history=history, oldest_now=oldest, workers=rest.workers, now=visit.now
        )
    )


def _failing(day: FlowChart | None, dead: Sequence[DeadGroup]) -> list[Failing]:
    """Give the job types that failed most in a day, and what most of their dead letters died of."""
    errors = {group.name: group for group in sorted(dead, key=lambda group: group.count)}
    return [] if day is None else [_failing_one(kind, errors.get(kind.name)) for kind in day.failing[:_KINDS]]


def _failing_one(kind: FlowKind, group: DeadGroup | None) -> Failing:
    error = "" if group is None else group.error_code or group.error_type or group.reason.replace("_", " ")
    return Failing(kind.name, error, *_failed(kind.tally), kind.tally.of(FlowOutcome.DEAD))


def _failed(tally: Tally) -> tuple[int, int]:
    """Give how many attempts failed, and of how many; what counts against no job is in neither."""
    return tally.failed, tally.failed + tally.of(FlowOutcome.OK)


def _oldest(stats: Stats) -> float:
    return max((queue.oldest_ready_seconds or 0.0 for queue in stats.queues), default=0.0)


def _harm(queue: QueueView) -> tuple[bool, float, int]:
    return queue.paused_at is not None, queue.oldest_ready_seconds or 0.0, queue.depth.get(State.READY, 0)


async def _changes(visit: Visit) -> list[AuditView]:
    """Give what was lately done to the service itself, for those who may see who did it."""
    if not visit.may(OPERATE):
        return []
    since = visit.now - _CHANGED_LATELY
    query = AuditQuery(tenant=visit.tenant, since=since, limit=_LOOKED_AT)
    rows = (await visit.services.audit.list(query, seen_by=visit.tenant)).items
    return [row for row in rows if row.target_kind not in _OF_ONE][:_CHANGES]


async def _fires(visit: Visit) -> list[tuple[str, Document]]:
    """Give the next fires over all schedules, the soonest first."""
    found = []
    for schedule in await visit.services.schedules.list(with_payload=False):
        following = schedule["next_fires"]
        assert isinstance(following, list)  # noqa: S101 - a document of ours
        found += [(str(schedule["name"]), fire) for fire in following[:1]]
    return sorted(found, key=lambda entry: entry[1]["at"])[:_FIRES]
