"""The verdict on the whole service, and the reasons for it with the worst first. Pure.

Stalled: work waits and nobody works. Failing: jobs die now. Backlog: something waits too long, is paused, or is served
by nobody. Draining: workers leave. Else all is well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..domain.snapshot import DeadGroup, QueueView, Stats, WorkerView
from ..domain.state import State
from .words import ago, clock, dur

LONGEST_READY = timedelta(minutes=5)
_LATELY = timedelta(hours=1)
_ORDER = ("stalled", "failing", "backlog", "paused", "unserved", "draining", "held")
_VERDICTS = {
    "stalled": "stalled",
    "failing": "failing",
    "backlog": "backlog",
    "paused": "backlog",
    "unserved": "backlog",
    "draining": "draining",
    "held": "backlog",
}
MOST_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """One reason: what it is about, in a sentence with its number, and where to go. `path` has `q` as its search."""

    state: str
    subject: str
    text: str
    path: str
    door: str
    q: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A word, and why."""

    verdict: str
    reasons: tuple[Why, ...]


def health_of(stats: Stats, workers: Sequence[WorkerView], dead: Sequence[DeadGroup], now: datetime) -> Health:
    """Judge a service by its counts, its live workers and its dead letters."""
    live = [worker for worker in workers if worker.closed_at is None and worker.lost_at is None]
    reasons = sorted(
        [
            *_stalled(stats, live),
            *_failing(dead, now),
            *_queues(stats.queues, live),
            *_leaving(live),
            *_held(stats),
        ],
        key=lambda why: _ORDER.index(why.state),
    )
    return Health(verdict=_VERDICTS[reasons[0].state] if reasons else "ok", reasons=tuple(reasons))


def _stalled(stats: Stats, live: Sequence[WorkerView]) -> Iterator[Why]:
    waiting = sum(stats.by_state.get(state, 0) for state in (State.READY, State.DELAYED))
    if not live and waiting:
        yield Why(
            state="stalled",
            subject="no worker",
            text=f"No worker lives and {waiting:,} jobs wait. Start one with `outlast worker`.",
            path="/workers",
            door="Workers",
        )


def _failing(dead: Sequence[DeadGroup], now: datetime) -> Iterator[Why]:
    for group in sorted(dead, key=lambda group: group.last_at, reverse=True):
        if now - group.last_at <= _LATELY:
            error = group.error_code or group.error_type or group.reason.replace("_", " ")
            yield Why(
                state="failing",
                subject=group.name,
                text=f"{group.count:,} died of {error}, the last {ago(group.last_at, now)}.",
                path="/dead",
                door="Dead letters",
                q=f"name:{group.name}",
            )


def _queues(queues: Sequence[QueueView], live: Sequence[WorkerView]) -> Iterator[Why]:
    served = {queue for worker in live for queue in worker.queues}
    for queue in queues:
        ready = queue.depth.get(State.READY, 0)
        waits = ready + queue.depth.get(State.DELAYED, 0)
        oldest = timedelta(seconds=queue.oldest_ready_seconds or 0)
        of_queue = f"state:ready queue:{queue.name}"
        if queue.paused_at is not None:
            until = f", resumes at {clock(queue.paused_until)} UTC" if queue.paused_until is not None else ""
            text = f"Paused by {queue.paused_by} at {clock(queue.paused_at)} UTC{until}. {waits:,} jobs wait."
            yield Why(state="paused", subject=queue.name, text=text, path=f"/queues/{queue.name}", door="Queue")
        elif ready and live and queue.name not in served:
            text = f"No live worker serves this queue. {ready:,} jobs are ready."
            yield Why(state="unserved", subject=queue.name, text=text, path="/jobs", door=f"{ready:,} jobs", q=of_queue)
        elif oldest > LONGEST_READY:
            waited, limit = dur(oldest.total_seconds() * 1_000), dur(LONGEST_READY.total_seconds() * 1_000)
            text = f"The oldest ready job has waited {waited}, the limit is {limit}."
            yield Why(state="backlog", subject=queue.name, text=text, path="/jobs", door=f"{ready:,} ready", q=of_queue)


def _leaving(live: Sequence[WorkerView]) -> Iterator[Why]:
    leaving = [worker for worker in live if worker.drain_phase is not None]
    if leaving:
        held = sum(worker.running for worker in leaving)
        text = f"{len(leaving)} of {len(live)} workers drain, with {held:,} runs in flight."
        subject = f"{len(leaving)} worker{'s' if len(leaving) > 1 else ''}"
        yield Why(state="draining", subject=subject, text=text, path="/workers", door="Watch the drain")


def _held(stats: Stats) -> Iterator[Why]:
    held = stats.by_state.get(State.HELD, 0)
    if held:
        what = (
            "run does not fit the code at hand and waits" if held == 1 else "runs do not fit the code at hand and wait"
        )
        door = "1 job" if held == 1 else f"{held:,} jobs"
        yield Why(state="held", subject="held", text=f"{what} for a person.", path="/jobs", door=door, q="state:held")
