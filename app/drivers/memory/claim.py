"""Claim: take what a worker can start now, in order, and open an attempt on each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from heapq import merge

from ...domain.errors import QueuesEmpty
from ...domain.job import ClaimedJob, ClaimToken, JobId, WorkerId
from ..protocol import ClaimRequest
from .rows import Ready, Running
from .store import Place, Store


def claim(store: Store, request: ClaimRequest) -> tuple[ClaimedJob, ...]:
    """Take ready jobs; see `JobDriver.claim`.

    Raises:
        QueuesEmpty: the request names no queue.
    """
    refuse_empty(request)
    with store.statement() as now:
        return claim_at(store, request, now)


def refuse_empty(request: ClaimRequest) -> None:
    """Refuse a claim without a queue.

    Raises:
        QueuesEmpty: the request names no queue.
    """
    if not request.shares:
        raise QueuesEmpty("a claim named no queue", fix="name at least one queue, such as OUTLAST_QUEUES=default:10")


def claim_at(store: Store, request: ClaimRequest, now: datetime) -> tuple[ClaimedJob, ...]:
    """Claim within a statement that does more."""
    worker = store.workers.get(request.worker_id)
    if worker is None or not worker.is_alive(now):
        return ()
    room = open_room(store, request, now)
    chosen: list[JobId] = []
    for job_id in startable(store, request, worker.about.code_version, room, store.queue):
        if len(chosen) >= request.room:
            break
        queue = store.queue_of(job_id)
        if room[queue] > 0:
            room[queue] -= 1
            chosen.append(job_id)
    return tuple(open_claim(store, job_id, request.worker_id, now) for job_id in chosen)


def open_room(store: Store, request: ClaimRequest, now: datetime) -> dict[str, int]:
    """Give how many jobs may be taken of each queue that is open; for a caller in a statement."""
    open_ones = (share for share in request.shares if is_open(store, share.queue, now))
    return {share.queue: min(share.room, places(store, share.queue)) for share in open_ones}


def startable(
    store: Store, request: ClaimRequest, version: str, queues: Iterable[str], lane: Callable[[str], Iterable[Place]]
) -> Iterator[JobId]:
    """Walk the queues' lanes as one, by `(rank, seq)`, and give what the worker may start, room apart.

    A job that was handed back is for workers of its version; its claim ends that, wherever it goes afterwards.
    """
    for _, _, job_id in merge(*(lane(queue) for queue in queues)):
        if fits(store, job_id, request.names, version, alone_ok=request.alone_ok):
            yield job_id


def is_open(store: Store, queue: str, now: datetime) -> bool:
    """Say whether claims from a queue are not stopped."""
    return store.pause_of(queue, now) is None


def places(store: Store, queue: str) -> int:
    """Give how many more of a queue's jobs may run in the whole fleet: any number where it has no limit."""
    most = store.concurrency.get(queue)
    return sys.maxsize if most is None else most - store.running_of(queue)


def fits(store: Store, job_id: JobId, names: frozenset[str], version: str, *, alone_ok: bool) -> bool:
    """Say whether a ready job is for a worker of a version that knows `names`; `alone_ok` if it runs nothing else."""
    may_share = alone_ok or not _must_run_alone(store, job_id)
    return store.envelopes[job_id].job.name in names and _is_for(store, job_id, version) and may_share


def _is_for(store: Store, job_id: JobId, version: str) -> bool:
    token = store.tokens[job_id]
    return isinstance(token, Ready) and (token.pin is None or token.pin.version == version)


def _must_run_alone(store: Store, job_id: JobId) -> bool:
    return store.tokens[job_id].counters.crashes + 1 >= store.envelopes[job_id].job.max_crashes


def open_claim(store: Store, job_id: JobId, worker_id: WorkerId, now: datetime) -> ClaimedJob:
    """Open an attempt of a ready job, for a caller in a statement that has decided that it may start."""
    envelope = store.envelopes[job_id]
    job = envelope.job
    token = store.tokens[job_id]
    if not isinstance(token, Ready):
        raise TypeError("only ready jobs are claimed")
    counters, fence = token.counters.claimed(), token.seq
    store.place(job_id, Running(counters=counters, fence=fence, worker_id=worker_id, claimed_at=now))
    return ClaimedJob(
        token=ClaimToken(job_id=job_id, claim_no=counters.claim_no, worker_id=worker_id, fence=fence),
        run_id=envelope.run_id,
        name=job.name,
        queue=job.queue,
        priority=job.priority,
        tenant=job.tenant,
        payload=job.payload,
        counters=counters,
        max_attempts=job.max_attempts,
        max_crashes=job.max_crashes,
        created_at=envelope.created_at,
        claimed_at=now,
        run_at=envelope.run_at,
        timeout=job.timeout,
        deadline_in=None if envelope.deadline_at is None else envelope.deadline_at - now,
        key=job.key,
        parent_id=job.parent_id,
        enqueued_by=job.enqueued_by,
        traceparent=job.traceparent,
        tags=job.tags,
        calls_back=job.callback is not None,
        meta=job.meta,
        is_limited=job.queue in store.concurrency,
    )
