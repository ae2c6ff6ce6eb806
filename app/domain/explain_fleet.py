"""Reasons that lie with the queue and with the workers there are: paused, not served, not known, full, not its turn.

Each is a function of the situation. Called by `explain`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from .explain_state import instant
from .reason import MOST_AHEAD, PauseView, Reason, ReasonCode, Situation
from .snapshot import WorkerView
from .state import State
from .turns import TurnFacts


def of_queue(situation: Situation) -> Iterator[Reason]:
    """Give what the job's queue says."""
    queue, most = situation.job.queue, situation.concurrency
    if situation.pause is not None:
        yield _paused(situation.pause, queue)
    if most is not None and situation.running >= most:
        yield Reason(
            code=ReasonCode.QUEUE_AT_LIMIT,
            text=f"{situation.running} jobs of the queue {queue!r} run, and {most} may",
            facts={"queue": queue, "running": situation.running, "concurrency": most},
            repair=f"PATCH /v1/queues/{queue} with a higher `concurrency` lets more of them run",
        )


def _paused(pause: PauseView, queue: str) -> Reason:
    until = "" if pause.until is None else f" until {instant(pause.until)}"
    why = f": {pause.reason}" if pause.reason else ""
    return Reason(
        code=ReasonCode.QUEUE_PAUSED,
        text=f"the queue {queue!r} is paused{until} by {pause.by} since {instant(pause.at)}{why}",
        facts={"queue": queue, "by": pause.by, "since": pause.at, "until": pause.until, "reason": pause.reason},
        repair=f"POST /v1/queues/{queue}/resume lets claims begin again",
    )


def of_fleet(situation: Situation) -> Iterator[Reason]:
    """Give why no worker there is would claim it: the first of the questions that all of them fail."""
    queue, live = situation.job.queue, living(situation)
    if not live:
        yield Reason(
            code=ReasonCode.NO_WORKERS, text="no worker lives", repair=f"start one: `outlast worker --queues {queue}`"
        )
        return
    serving = [worker for worker in live if queue in worker.queues]
    if not serving:
        served = sorted({name for worker in live for name in worker.queues})
        yield Reason(
            code=ReasonCode.QUEUE_NOT_SERVED,
            text=f"no live worker serves the queue {queue!r}; those that live serve {', '.join(served)}",
            facts={"queue": queue, "served": served},
            repair=f"name the queue in OUTLAST_QUEUES of a worker, or start one: `outlast worker --queues {queue}`",
        )
        return
    staying = [worker for worker in serving if stays(worker)]
    if not staying:
        names = _named(serving)
        yield Reason(
            code=ReasonCode.WORKERS_DRAINING,
            text=f"every worker of the queue {queue!r} is leaving: {', '.join(names)}",
            facts={"queue": queue, "workers": names},
            repair="wait for those that take their place, or start one",
        )
        return
    yield from _of_code(situation, staying)


def _of_code(situation: Situation, staying: Sequence[WorkerView]) -> Iterator[Reason]:
    job, pin = situation.job, situation.pin
    versions = sorted({worker.code_version for worker in staying})
    if not any(knows(worker, job.name) for worker in staying):
        published = situation.published
        yield Reason(
            code=ReasonCode.NAME_UNKNOWN,
            text=f"no worker of the queue {job.queue!r} knows the job type {job.name!r}"
            f" (they run code {', '.join(versions)}; "
            + (f"code {published} published it last)" if published else "nobody has published it)"),
            facts={"name": job.name, "published": published, "versions": versions},
            repair="start a worker of that queue whose OUTLAST_JOBS names the module that declares it",
        )
    elif pin is not None and not any(worker.code_version == pin.version for worker in staying):
        yield Reason(
            code=ReasonCode.VERSION_NOT_SERVED,
            text=f"it is kept for code {pin.version} until {instant(pin.until)}, and no worker of the queue"
            f" {job.queue!r} has it (they run {', '.join(versions)})",
            facts={"version": pin.version, "until": pin.until, "versions": versions},
            repair=f"start a worker with code {pin.version}; without one the job is held, for an operator to decide",
        )


def of_turn(situation: Situation) -> Iterator[Reason]:
    """Give what a job that some worker would claim still waits for. Nothing for one that is not ready."""
    job, able = situation.job, serving(situation)
    if job.state is not State.READY:
        return
    if able and all(worker.running >= worker.concurrency for worker in able):
        running, room = sum(worker.running for worker in able), sum(worker.concurrency for worker in able)
        yield Reason(
            code=ReasonCode.WORKERS_BUSY,
            text=f"every worker that could claim it is full: {running} jobs run in {room} places",
            facts={"running": running, "concurrency": room, "workers": _named(able)},
            repair="start more workers, or raise OUTLAST_CONCURRENCY",
        )
    if job.counters.crashes + 1 >= job.max_crashes:
        yield Reason(
            code=ReasonCode.RUNS_ALONE,
            text=f"it must run alone ({job.counters.crashes} crashes of {job.max_crashes}, one more is its last): it"
            " waits for a worker that runs nothing else",
            facts={"crashes": job.counters.crashes, "max_crashes": job.max_crashes},
        )
    if situation.ahead and situation.turn is not None:
        yield _turn(situation, situation.turn)
    elif situation.ahead:
        capped = situation.ahead >= MOST_AHEAD
        count = f"{situation.ahead:,}{' or more' if capped else ''} {'job is' if situation.ahead == 1 else 'jobs are'}"
        yield Reason(
            code=ReasonCode.AHEAD,
            text=f"{count} before it in the queue {job.queue!r}",
            facts={"count": situation.ahead, "capped": capped, "queue": job.queue},
            repair="start more workers of the queue if it does not shrink",
        )
    elif situation.is_claimable and able:
        names = _named(able)
        yield Reason(
            code=ReasonCode.NEXT,
            text=f"nothing keeps it: it is next in its queue, which is served by {', '.join(names)}",
            facts={"workers": names},
        )


def _turn(situation: Situation, turn: TurnFacts) -> Reason:
    queue, others = situation.job.queue, turn.tenants - 1
    capped = situation.ahead >= MOST_AHEAD
    begin = "job begins" if situation.ahead == 1 else "jobs begin"
    count = f"{situation.ahead:,}{' or more' if capped else ''} {begin}"
    return Reason(
        code=ReasonCode.TURN,
        text=f"it waits its turn: tenant {turn.tenant} (weight {turn.weight}) takes turns with {others}"
        f" {'other' if others == 1 else 'others'} in the queue {queue!r}; {count} before it, {turn.own_ahead:,} of its"
        " own tenant",
        facts={
            "queue": queue,
            "tenant": turn.tenant,
            "weight": turn.weight,
            "tenants": turn.tenants,
            "own_ahead": turn.own_ahead,
            "count": situation.ahead,
            "capped": capped,
        },
        repair=f"start more workers of the queue, or give the tenant more of it: `outlast queues set {queue} --weight"
        f" {turn.tenant}=N`",
    )


def living(situation: Situation) -> list[WorkerView]:
    """Give the workers whose lease lasts."""
    return [worker for worker in situation.workers if is_alive(worker, situation.at)]


def serving(situation: Situation) -> list[WorkerView]:
    """Give the workers that would claim the job if they had room: they stay, serve its queue and fit its code."""
    job, pin = situation.job, situation.pin
    return [
        worker
        for worker in living(situation)
        if job.queue in worker.queues
        and stays(worker)
        and knows(worker, job.name)
        and (pin is None or pin.version == worker.code_version)
    ]


def is_alive(worker: WorkerView, at: datetime) -> bool:
    """Say whether a worker's lease lasts: neither passed, nor taken, nor closed."""
    return worker.lost_at is None and worker.closed_at is None and worker.lease_until > at


def stays(worker: WorkerView) -> bool:
    """Say whether no drain has begun or been asked for."""
    return worker.drain_phase is None and worker.drain_asked_at is None


def knows(worker: WorkerView, name: str) -> bool:
    """Say whether a worker knows a job type; one of an earlier release does not say, and is taken to."""
    return worker.names is None or name in worker.names


def _named(workers: Sequence[WorkerView]) -> list[str]:
    shown = [f"worker {worker.id} ({worker.host})" for worker in workers[:_NAMED]]
    return shown if len(workers) <= _NAMED else [*shown, f"{len(workers) - _NAMED} more"]


_NAMED = 5
