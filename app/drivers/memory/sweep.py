"""Maintenance over time: say what is due, promote what is due, end what waited too long."""

from __future__ import annotations

from datetime import datetime, timedelta

from ...domain.job import JobId
from ...domain.queue import JUST_ENDED
from ...domain.snapshot import Due, Expired
from ...domain.state import DeadReason, State
from .bulk_rows import must_work_off
from .limit_versions import forsaken
from .limits import admit_in, has_gated, has_orphans
from .reap import any_to_reap
from .rows import Finished, Running, Waiting
from .store import Store
from .turns import must_line_up
from .versions import must_release
from .waking import wake_in, wake_parents
from .webhook_rows import is_pending


def due(store: Store) -> Due:
    """Say what the sweeps would find to do; see `JobDriver.due`."""
    with store.statement() as now:
        waits = [token.due_at for token in store.tokens.values() if isinstance(token, Waiting)]
        return Due(
            promote_in=min(waits) - now if waits else None,
            must_expire=any(_over(store, job_id, now) for job_id in store.tokens),
            must_reap=any_to_reap(store, now),
            wake_in=wake_in(store, now),
            must_release=must_release(store, now),
            resume_in=_resume_in(store, now),
            has_resumed=_has_resumed(store, now),
            must_bulk=must_work_off(store.bulk.values(), now),
            must_free=has_orphans(store) or any(forsaken(store, now)) or any(store.limits.unused(now)),
            is_gated=has_gated(store) or bool(store.turns.fair),
            must_line_up=must_line_up(store),
            must_carry=any(one.carrier is None for one in store.deliveries.values() if is_pending(one)),
            admit_in=admit_in(store, now),
        )


def promote(store: Store, batch: int) -> int:
    """Make due jobs ready, the longest due first; see `JobDriver.promote`."""
    with store.statement() as now:
        due = sorted(
            (token.due_at, job_id)
            for job_id, token in store.tokens.items()
            if isinstance(token, Waiting) and token.due_at <= now
        )[:batch]
        for _, job_id in due:
            token = store.tokens[job_id]
            if isinstance(token, Waiting):
                store.make_ready(job_id, token.counters, rank=token.rank, pin=token.pin)
        return len(due)


def expire(store: Store, batch: int) -> tuple[Expired, ...]:
    """End waiting jobs whose time is over, the longest over first; see `JobDriver.expire`."""
    with store.statement() as now:
        over = sorted(end for job_id in store.tokens for end in _over(store, job_id, now))[:batch]
        ended = tuple(_end(store, job_id, reason, now) for _, job_id, reason in sorted(over, key=lambda end: end[1]))
        wake_parents(store, [one.job_id for one in ended], now)
        return ended


def _resume_in(store: Store, now: datetime) -> timedelta | None:
    ends = [pause.until for pause in store.pauses.values() if pause.until is not None and pause.until > now]
    return min(ends) - now if ends else None


def _has_resumed(store: Store, now: datetime) -> bool:
    ends = (pause.until for pause in store.pauses.values())
    return any(end is not None and now - JUST_ENDED < end <= now for end in ends)


def _end(store: Store, job_id: JobId, reason: DeadReason, now: datetime) -> Expired:
    dead = Finished(counters=store.tokens[job_id].counters, state=State.DEAD, finished_at=now, reason=reason)
    store.place(job_id, dead)
    job = store.envelopes[job_id].job
    return Expired(job_id=job_id, name=job.name, queue=job.queue, reason=reason)


def _over(store: Store, job_id: JobId, now: datetime) -> list[tuple[datetime, JobId, DeadReason]]:
    """Give the limit a waiting job has passed, the earlier of two: at most one entry."""
    token, envelope = store.tokens[job_id], store.envelopes[job_id]
    if isinstance(token, Running | Finished):
        return []
    limits = []
    # A snooze and a suspension clear `start_by`, every other attempt that began left a row: without either, claims were
    # only handed back.
    if envelope.start_by is not None and not store.ledger.get(job_id):
        limits.append((envelope.start_by, job_id, DeadReason.EXPIRED))
    if envelope.deadline_at is not None:
        limits.append((envelope.deadline_at, job_id, DeadReason.DEADLINE))
    return sorted(limit for limit in limits if limit[0] <= now)[:1]
