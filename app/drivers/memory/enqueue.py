"""Enqueue: what a request becomes, decided against the rows and the batch before it, and put in place in one go.

A batch is drafted on top of the rows and merged when every job in it has an answer, so a refused one leaves nothing.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from uuid import UUID

from ...domain.errors import IdempotencyMismatch, JobDuplicate, OutlastError, RequestInvalid
from ...domain.job import Counters, Enqueued, JobId, NewJob, RunId
from ...domain.outbox import SOURCE_KEPT
from ...domain.queue import queue_full
from .rows import Envelope, Key, Source, SourceId, Wait, Waiting
from .store import Store

MAX_BATCH = 50_000


class _Draft:
    """A batch in the making: every look-up sees the rows and the jobs of the batch so far.

    `is_part`: its jobs belong to work that was taken in before, so that no queue is too full for them.
    """

    def __init__(self, store: Store, now: datetime, *, is_part: bool = False) -> None:
        self.now = now
        self._store = store
        self._is_part = is_part
        self.fresh: dict[JobId, Envelope] = {}
        self.envelopes: ChainMap[JobId, Envelope] = ChainMap(self.fresh, store.envelopes)
        self.fresh_keys: dict[UUID, Key] = {}
        self.keys: ChainMap[UUID, Key] = ChainMap(self.fresh_keys, store.keys)
        self.fresh_sources: dict[SourceId, Source] = {}
        self.sources: ChainMap[SourceId, Source] = ChainMap(self.fresh_sources, store.sources)

    def add(self, job: NewJob) -> Enqueued:
        """Decide one job: there already, a duplicate, refused, or new.

        Raises:
            JobDuplicate: its key is taken and the request wants to know.
            IdempotencyMismatch: its key is taken by a job with another payload.
            QueueFull: it is new, and its queue is at its maximum depth.
        """
        if job.source_id is not None and job.source_id in self.sources:
            return self._answer(self.sources[job.source_id].job_id, is_deduped=True)
        key = None if job.key_hash is None else self.keys.get(job.key_hash)
        if job.id in self.envelopes or (key is not None and key.job_id == job.id):
            return self._answer(job.id, is_deduped=False, key=key)
        if key is not None and key.is_taken(self.now):
            return self._deduped(job, key)
        self._refuse_full(job.queue)
        self._keep(job)
        return self._answer(job.id, is_deduped=False, key=self.keys.get(job.key_hash) if job.key_hash else None)

    def _deduped(self, job: NewJob, key: Key) -> Enqueued:
        refuse_taken_key(job, key)
        if job.source_id is not None:  # a republish finds this job even after its key is free again
            self.sources[job.source_id] = self._source(key.job_id)
        return self._answer(key.job_id, is_deduped=True, key=key)

    def _refuse_full(self, queue: str) -> None:
        most = None if self._is_part else self._store.max_depth.get(queue)
        if most is None:
            return
        fresh = sum(envelope.job.queue == queue for envelope in self.fresh.values())
        if self._store.depth_of(queue) + fresh >= most:
            raise queue_full(queue, most)

    def _keep(self, job: NewJob) -> None:
        now = self.now
        self.envelopes[job.id] = Envelope(
            job=job,
            run_id=RunId(job.id),
            created_at=now,
            events_from=now if job.staged_at is None else min(now, job.staged_at),
            run_at=job.run_at if job.delay is None else now + job.delay,
            start_by=None if job.max_queue_time is None else now + job.max_queue_time,
            deadline_at=None if job.deadline is None else now + job.deadline,
        )
        if job.key_hash is not None:
            expires_at = None if job.dedupe_for is None else now + job.dedupe_for
            self.keys[job.key_hash] = Key(job_id=job.id, fingerprint=job.fingerprint, expires_at=expires_at)
        if job.source_id is not None:
            self.sources[job.source_id] = self._source(job.id)

    def _source(self, job_id: JobId) -> Source:
        return Source(job_id=job_id, expires_at=self.now + SOURCE_KEPT)

    def _answer(self, job_id: JobId, *, is_deduped: bool, key: Key | None = None) -> Enqueued:
        envelope = self.envelopes.get(job_id)
        return Enqueued(
            id=job_id,
            run_id=RunId(job_id) if envelope is None else envelope.run_id,
            deduped=is_deduped,
            key_expires_at=None if key is None or key.job_id != job_id else key.expires_at,
        )


def enqueue(store: Store, job: NewJob) -> Enqueued:
    """Store one job; see `JobDriver.enqueue`.

    Raises:
        JobDuplicate: its key is taken and the request wants to know.
        IdempotencyMismatch: its key is taken by a job with another payload.
        QueueFull: its queue is at its maximum depth.
    """
    with store.statement() as now:
        return enqueue_at(store, now, job)


def enqueue_at(store: Store, now: datetime, job: NewJob, *, is_part: bool = False) -> Enqueued:
    """Store one job within a statement that began already. Raises what `enqueue` raises.

    `is_part`: it belongs to work that was taken in before; no queue is too full for it.
    """
    (answer,) = enqueue_all_at(store, now, (job,), is_part=is_part)
    return answer


def enqueue_all_at(
    store: Store,
    now: datetime,
    jobs: Sequence[NewJob],
    *,
    is_part: bool = False,
    refuse: Callable[[tuple[Enqueued, ...]], None] = lambda _: None,
) -> tuple[Enqueued, ...]:
    """Store all or none within a statement that began already; `refuse` may raise when it has seen the answers.

    Raises what `enqueue` raises.
    """
    draft = _Draft(store, now, is_part=is_part)
    answers = tuple(draft.add(job) for job in jobs)
    refuse(answers)
    _merge(store, draft)
    return answers


def enqueue_many(store: Store, jobs: Sequence[NewJob]) -> tuple[Enqueued, ...]:
    """Store all or none; see `JobDriver.enqueue_many`.

    Raises:
        RequestInvalid: more jobs than a batch may have.
        OutlastError: what refused one of them, with its `index`.
    """
    if len(jobs) > MAX_BATCH:
        raise RequestInvalid(
            f"a batch of {len(jobs)} jobs is over the limit of {MAX_BATCH}",
            fix=f"send batches of at most {MAX_BATCH} jobs",
        )
    with store.statement() as now:
        return add_all(store, now, jobs)


def add_all(store: Store, now: datetime, jobs: Sequence[NewJob]) -> tuple[Enqueued, ...]:
    """Store all or none within a statement that began already; what refused one of them has its `index`."""
    draft = _Draft(store, now)
    answers = tuple(_add_all(draft, jobs))
    _merge(store, draft)
    return answers


def refuse_taken_key(job: NewJob, key: Key) -> None:
    """Refuse a job whose key is held by another one, unless the caller is content with that one.

    Raises:
        IdempotencyMismatch: the holder has another payload.
        JobDuplicate: the request asked for an error.
    """
    if key.fingerprint != job.fingerprint:
        raise IdempotencyMismatch(
            f"the key {job.key!r} of {job.name} belongs to job {key.job_id}, which has another payload",
            fix="send the first payload again, or choose another key",
            existing_id=key.job_id,
        )
    if job.on_conflict == "error":
        raise JobDuplicate(
            f"the key {job.key!r} of {job.name} is held by job {key.job_id}",
            fix="use that job, or wait until it has ended",
            existing_id=key.job_id,
        )


def _add_all(draft: _Draft, jobs: Sequence[NewJob]) -> Iterable[Enqueued]:
    for index, job in enumerate(jobs):
        try:
            yield draft.add(job)
        except OutlastError as error:
            error.details["index"] = index
            raise


def _merge(store: Store, draft: _Draft) -> None:
    store.keys.update(draft.fresh_keys)
    store.sources.update(draft.fresh_sources)
    for job_id, envelope in draft.fresh.items():
        store.envelopes[job_id] = envelope
        store.mark(job_id)
        if envelope.run_at is None or envelope.run_at <= draft.now:
            store.make_ready(job_id, Counters(), rank=store.rank(job_id))
        else:
            waiting = Waiting(
                counters=Counters(), rank=store.rank(job_id), due_at=envelope.run_at, reason=Wait.SCHEDULED
            )
            store.place(job_id, waiting)
