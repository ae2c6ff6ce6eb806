"""The situation of one job: all that decides about its claim, in one statement."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from datetime import datetime

from ...domain.job import JobId
from ...domain.reason import MOST_AHEAD, PauseView, PinView, Situation
from .claim import fits, is_open, places
from .limits import facts_of
from .overview import workers_at
from .read import described
from .rows import Ready
from .store import Store
from .turns import turn_of


def situation(store: Store, job_id: JobId, *, tenant: str | None) -> Situation | None:
    """Give a job's situation; see `ReadStore.situation`."""
    with store.statement() as now:
        job = described(store, job_id, now, tenant=tenant)
        if job is None:
            return None
        token = store.tokens[job_id]
        ready = token if isinstance(token, Ready) else None
        published = store.job_types.get(job.name)
        turn = turn_of(store, job_id)
        ahead = 0 if ready is None else _ahead(store, job_id, ready) if turn is None else turn[1]
        return Situation(
            at=now,
            job=replace(job, payload=None, result=None),
            is_claimable=ready is not None and _is_claimable(store, job_id, ready, now),
            pause=_pause(store, job.queue, now),
            concurrency=(most := store.concurrency.get(job.queue)),
            running=0 if most is None else store.running_of(job.queue),
            pin=None if ready is None else _pin(ready),
            ahead=ahead,
            turn=None if turn is None else turn[0],
            published=None if published is None else published.code_version,
            limits=facts_of(store, job_id, now, tenant=tenant),
            workers=workers_at(store, now),
        )


def _is_claimable(store: Store, job_id: JobId, ready: Ready, now: datetime) -> bool:
    """Ask the claim's own conditions for a worker that serves queue, name and version and runs nothing else."""
    job = store.envelopes[job_id].job
    version = "" if ready.pin is None else ready.pin.version
    has_place = is_open(store, job.queue, now) and places(store, job.queue) > 0
    is_free = all(facts.is_free for facts in facts_of(store, job_id, now))
    return is_free and has_place and fits(store, job_id, frozenset({job.name}), version, alone_ok=True)


def _pause(store: Store, queue: str, now: datetime) -> PauseView | None:
    found = store.pause_of(queue, now)
    return None if found is None else PauseView(at=found.at, by=found.by, reason=found.reason, until=found.until)


def _pin(ready: Ready) -> PinView | None:
    return None if ready.pin is None else PinView(version=ready.pin.version, until=ready.pin.until)


def _ahead(store: Store, job_id: JobId, ready: Ready) -> int:
    lane = store.gate if store.is_gated(job_id) else store.queue
    return min(bisect_left(lane(store.queue_of(job_id)), (ready.rank, ready.seq, job_id)), MOST_AHEAD)
