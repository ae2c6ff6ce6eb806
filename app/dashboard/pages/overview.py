"""The first page: the verdict and its reasons, how much is where, which queues need a look, who works, what is next."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import Response

from ...control.render import Document
from ...domain.audit import AuditQuery, AuditView, Target
from ...domain.snapshot import QueueView, Stats
from ...domain.state import LIVE, State
from ..health import LONGEST_READY, MOST_SHOWN, health_of
from ..panels import panel_of
from ..visit import COUNTED_ENDED, OPERATE, Visit
from ..words import dur

_TILES = (State.READY, State.RUNNING, State.DELAYED, State.SUSPENDED, State.HELD, State.DEAD, State.DONE)
_QUEUES = 8
_GROUPS = 5
_FIRES = 5
_CHANGES = 5
_CHANGED_LATELY = timedelta(hours=3)
_LOOKED_AT = 50
# What is done to single jobs, and who was turned away, is for the audit's own page.
_OF_ONE = frozenset({Target.JOB.value, Target.AUTH.value})


async def page(visit: Visit) -> Response:
    """Give the overview."""
    services = visit.services
    stats = await services.overview.stats()
    workers = await services.fleet.workers()
    dead = await panel_of(services.overview.dead_letters(tenant=visit.tenant))
    live = [worker for worker in workers if worker.closed_at is None and worker.lost_at is None]
    health = health_of(stats, workers, dead.value or (), visit.now)
    types = await services.catalogue.all()
    return visit.page(
        "overview.html",
        title="Overview",
        at="overview",
        health=health,
        health_most=MOST_SHOWN,
        tiles=_tiles(stats, capacity=sum(worker.concurrency for worker in live)),
        is_empty=not any(stats.by_state.values()),
        queues=sorted(stats.queues, key=_harm, reverse=True)[:_QUEUES],
        queues_all=len(stats.queues),
        served={queue for worker in live for queue in worker.queues},
        dead_error=dead.error,
        groups=sorted(dead.value or (), key=lambda group: group.count, reverse=True)[:_GROUPS],
        live=live,
        draining=[worker for worker in live if worker.drain_phase],
        running=sum(worker.running for worker in live),
        capacity=sum(worker.concurrency for worker in live),
        series=_series(visit),
        types=[each.name for each in types],
        changes=await panel_of(_changes(visit)),
        fires=await panel_of(_fires(visit)),
        outbox=await panel_of(services.outbox.view(1, tenant=visit.tenant)),
    )


def _tiles(stats: Stats, *, capacity: int) -> list[tuple[str, int, bool, str]]:
    """Give state, figure, whether it is capped, and a line of context."""
    oldest = max((queue.oldest_ready_seconds or 0 for queue in stats.queues), default=0)
    context = {
        State.READY: f"oldest {dur(oldest * 1_000)}" if oldest else "none waits",
        State.RUNNING: f"capacity {capacity:,}",
        State.DELAYED: "due later, or retries",
        State.SUSPENDED: "wait by design",
        State.HELD: "need a person",
        State.DEAD: "budget spent",
        State.DONE: "kept for a while",
    }
    tiles = []
    for state in _TILES:
        count = stats.by_state.get(state, 0)
        is_capped = state not in LIVE and count >= COUNTED_ENDED
        tiles.append((state.value, count, is_capped, context[state]))
    return tiles


def _series(visit: Visit) -> dict[str, object]:
    """Give what was counted in the last hour, for two charts on one axis of time."""
    now, history = visit.now.timestamp(), visit.services.overview.history()
    return {
        "at": [round(now - sample.ago_seconds) for sample in history],
        "oldest": [round(sample.oldest_ready_seconds, 1) for sample in history],
        "ready": [sample.ready for sample in history],
        "running": [sample.running for sample in history],
        "limit": LONGEST_READY.total_seconds(),
    }


def _harm(queue: QueueView) -> tuple[bool, float, int]:
    return queue.paused_at is not None, queue.oldest_ready_seconds or 0.0, queue.depth.get(State.READY, 0)


async def _changes(visit: Visit) -> list[AuditView]:
    """Give what was lately done to the service itself, for those who may see who did it."""
    if not visit.may(OPERATE):
        return []
    since = visit.now - _CHANGED_LATELY
    query = AuditQuery(tenant=visit.tenant, since=since, limit=_LOOKED_AT)
    rows = (await visit.services.audit.list(query)).items
    return [row for row in rows if row.target_kind not in _OF_ONE][:_CHANGES]


async def _fires(visit: Visit) -> list[tuple[str, Document]]:
    """Give the next fires over all schedules, the soonest first."""
    found = []
    for schedule in await visit.services.schedules.list(with_payload=False):
        following = schedule["next_fires"]
        assert isinstance(following, list)  # noqa: S101 - a document of ours
        found += [(str(schedule["name"]), fire) for fire in following[:1]]
    return sorted(found, key=lambda entry: entry[1]["at"])[:_FIRES]
