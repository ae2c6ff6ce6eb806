"""The memory driver: every verb of the protocol over one `Store`, a file per verb.

The readable reference for what a job store does, and the store of tests and first tries. Volatile: it ends with its
process. Built by the composition root alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime

from ...domain.audit import AuditEntry
from ...domain.clock import Clock
from ...domain.drain import DrainAsk, DrainShown, DrainView
from ...domain.job import ClaimedJob, ClaimToken, Enqueued, JobId, NewJob, WorkerId
from ...domain.outcome import SettleAnswer, Settlement
from ...domain.reason import Situation
from ...domain.snapshot import (
    AttemptView,
    DeadGroup,
    Due,
    Expired,
    JobCount,
    JobPage,
    JobTypeDoc,
    JobView,
    NewWorker,
    PlacedPage,
    QueueView,
    Reaped,
    Stats,
    WorkerView,
)
from ...domain.vitals import Vitals
from ..capabilities import Capabilities
from ..finishes import Finishes
from ..protocol import NEWS, ClaimRequest, HeartbeatStore, JobDriver, Wake
from ..reading import ListQuery, TimeOrder
from . import (
    attempts,
    claim,
    drains,
    enqueue,
    explain,
    heartbeat,
    overview,
    read,
    reap,
    settle,
    sweep,
    vitals,
    workers,
)
from .actions import MemoryActions
from .api_keys import MemoryKeys
from .bulk import MemoryBulk
from .clock import SystemClock
from .flow import MemoryFlow
from .limit_verbs import MemoryLimits
from .outbox import MemoryOutbox
from .purge import MemoryPurges
from .queues import MemoryQueues
from .requests import MemoryRequests
from .schedules import MemorySchedules
from .store import Store
from .webhooks import MemoryWebhooks


class MemoryDriver(MemoryFlow, MemoryActions, MemoryLimits, MemoryPurges, MemoryQueues, MemoryRequests):
    """A `JobDriver` whose rows live in this process. What each verb does is said by the protocol."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(Store(clock or SystemClock()))
        self.outbox = MemoryOutbox(self._store)
        self._finishes = Finishes(self)
        self.schedules = MemorySchedules(self._store)
        self.bulk = MemoryBulk(self._store)
        self.api_keys = MemoryKeys(self._store)
        self.webhooks = MemoryWebhooks(self._store)

    @property
    def capabilities(self) -> Capabilities:
        """Say that nothing here outlives the process."""
        return Capabilities(name="memory", is_durable=False)

    async def open(self) -> None:
        """Take calls; rows from before a close are still there."""
        self._store.is_closed = False
        self._finishes.open()

    async def close(self) -> None:
        """Refuse every call from now on with `DRIVER_UNAVAILABLE`."""
        self._store.is_closed = True
        await self._finishes.close()

    async def ping(self) -> None:
        """Answer, unless closed."""
        with self._store.statement():
            pass

    # --- producers

    async def enqueue(self, job: NewJob) -> Enqueued:
        """Store one job."""
        return enqueue.enqueue(self._store, job)

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        """Store all or none."""
        return enqueue.enqueue_many(self._store, jobs)

    # --- workers

    async def register_worker(self, worker: NewWorker) -> WorkerId:
        """Give a new worker id with a lease."""
        return workers.register_worker(self._store, worker)

    async def show_worker(self, worker_id: WorkerId, *, wakeup: str | None, drain: DrainShown | None) -> None:
        """Show others how a worker does."""
        workers.show_worker(self._store, worker_id, wakeup=wakeup, drain=drain)

    async def ask_drain(self, worker_id: WorkerId, *, by: str, audit: AuditEntry | None = None) -> DrainAsk:
        """See `FleetStore.ask_drain`."""
        return workers.ask_drain(self._store, worker_id, by=by, audit=audit)

    async def drains(self, *, limit: int, before: WorkerId | None = None) -> tuple[DrainView, ...]:
        """See `FleetStore.drains`."""
        return drains.drains(self._store, limit=limit, before=before)

    async def close_worker(self, worker_id: WorkerId) -> None:
        """Close a worker in order."""
        workers.close_worker(self._store, worker_id)

    async def surrender(self, worker_id: WorkerId) -> tuple[Reaped, ...]:
        """Give back the claims of a worker without a lease."""
        return workers.surrender(self._store, worker_id)

    async def publish_job_types(self, types: Sequence[JobTypeDoc]) -> None:
        """Show the job types a worker serves."""
        overview.publish_job_types(self._store, types)

    async def claim(self, request: ClaimRequest) -> tuple[ClaimedJob, ...]:
        """Take ready jobs."""
        return claim.claim(self._store, request)

    async def release(self, tokens: Sequence[ClaimToken], *, cause: str) -> int:  # noqa: ARG002 - `cause` is for drivers that log
        """Hand back claims that were never begun."""
        return workers.release(self._store, tokens)

    async def reconcile(
        self, worker_id: WorkerId, held: Sequence[ClaimToken], *, before: datetime | None = None
    ) -> int:
        """Hand back claims whose reply was lost."""
        return workers.reconcile(self._store, worker_id, held, before=before)

    async def isolate(self, token: ClaimToken) -> bool:
        """Record that a job runs alone."""
        return workers.isolate(self._store, token)

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[SettleAnswer, ...]:
        """Close attempts with their outcomes."""
        return settle.settle(self._store, settlements)

    async def settle_and_claim(
        self, settlements: Sequence[Settlement], request: ClaimRequest
    ) -> tuple[tuple[SettleAnswer, ...], tuple[ClaimedJob, ...]]:
        """Close attempts, then take ready jobs."""
        return settle.settle_and_claim(self._store, settlements, request)

    def open_heartbeat(self) -> AbstractAsyncContextManager[HeartbeatStore]:
        """Open the heartbeat's way to the store."""
        return heartbeat.open_heartbeat(self._store)

    # --- maintenance

    async def due(self) -> Due:
        """Say what there is to do."""
        return sweep.due(self._store)

    async def reap(self, batch: int = 1000) -> tuple[Reaped, ...]:
        """Take over claims of workers that are gone."""
        return reap.reap(self._store, batch)

    async def promote(self, batch: int = 1000) -> int:
        """Make due jobs ready."""
        return sweep.promote(self._store, batch)

    async def expire(self, batch: int = 1000) -> tuple[Expired, ...]:
        """End waiting jobs whose time is over."""
        return sweep.expire(self._store, batch)

    # --- readers

    async def describe(self, job_id: JobId, *, tenant: str | None = None) -> JobView | None:
        """Give one job in full."""
        return read.describe(self._store, job_id, tenant=tenant)

    async def situation(self, job_id: JobId, *, tenant: str | None = None) -> Situation | None:
        """Give a job and all that decides about its claim."""
        return explain.situation(self._store, job_id, tenant=tenant)

    async def attempts(self, job_id: JobId, *, tenant: str | None = None) -> tuple[AttemptView, ...]:
        """Give the attempt ledger."""
        return attempts.attempts(self._store, job_id, tenant=tenant)

    async def list(self, query: ListQuery) -> JobPage:
        """Give one page of jobs."""
        return read.list_jobs(self._store, query)

    async def list_by_time(self, query: ListQuery, order: TimeOrder) -> PlacedPage:
        """Give one page of jobs in the order of a time."""
        return read.list_by_time(self._store, query, order)

    async def count_jobs(self, query: ListQuery) -> JobCount:
        """Count the jobs that fit."""
        return read.count_jobs(self._store, query)

    async def count_waiting(self, tenant: str, most: int) -> int:
        """Count a tenant's ready and delayed jobs."""
        return read.count_waiting(self._store, tenant, most)

    async def dead_letters(self, *, tenant: str | None = None) -> tuple[DeadGroup, ...]:
        """Group dead letters."""
        return read.dead_letters(self._store, tenant=tenant)

    async def finished_among(self, job_ids: Sequence[JobId]) -> frozenset[JobId]:
        """Say which jobs are terminal or gone."""
        return read.finished_among(self._store, job_ids)

    async def until_finished(self, job_id: JobId) -> None:
        """Return as soon as a job is terminal or gone."""
        await self._finishes.until(job_id)

    def heard(self, ear: Callable[[Wake], None]) -> AbstractContextManager[None]:
        """Hear wake-ups beside those who wait."""
        return self._finishes.heard(ear)

    async def stats(self) -> Stats:
        """Count jobs."""
        return overview.stats(self._store)

    async def queues(self) -> tuple[QueueView, ...]:
        """Give every queue."""
        return overview.queues(self._store)

    async def workers(self) -> tuple[WorkerView, ...]:
        """Give live workers and those that left lately."""
        return overview.workers(self._store)

    async def job_types(self) -> tuple[JobTypeDoc, ...]:
        """Give every published job type."""
        return overview.job_types(self._store)

    async def vitals(self) -> Vitals:
        """Give the store's health."""
        return vitals.vitals(self._store)

    async def database_time(self) -> datetime:
        """Give the store's clock."""
        with self._store.statement() as now:
            return now

    def listen(
        self, on_wake: Callable[[Wake], None], *, news: frozenset[Wake] = NEWS
    ) -> AbstractAsyncContextManager[None]:
        """Hear wake-ups on the running loop."""
        return self._store.bell.listen(on_wake, news)


_: type[JobDriver] = MemoryDriver
