"""The PostgreSQL driver: one class that gives every verb its database.

Owns the composition of the verbs and nothing else; each is a function in the module of its name. Made in the
composition root with the process's one engine, which stays its owner's to dispose of unless it is handed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import replace
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from ...domain.audit import AuditEntry
from ...domain.drain import DrainAsk, DrainShown, DrainView
from ...domain.job import ClaimedJob, ClaimToken, Enqueued, JobId, NewJob, WorkerId
from ...domain.outcome import SettleAnswer, Settlement
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
from ..capabilities import Capabilities, PoolUse
from ..finishes import Finishes
from ..protocol import NEWS, ClaimRequest, HeartbeatStore, JobDriver, Wake
from ..reading import ListQuery, TimeOrder
from . import (
    claim,
    counting,
    dead_letters,
    describe,
    drains,
    due,
    enqueue,
    expire,
    heartbeat,
    job_types,
    listen,
    listing,
    listing_by_time,
    promote,
    reap,
    release,
    settle,
    settle_and_claim,
    stats,
    workers,
)
from .action_verbs import ActionVerbs
from .api_keys import PostgresKeys
from .bulk import PostgresBulk
from .database import Database
from .enqueue_lane import EnqueueLanes
from .examine import examine
from .flow import PostgresFlow
from .limit_verbs import LimitVerbs
from .look import look
from .look_verbs import LookVerbs
from .moves import PostgresMoves
from .outbox import PostgresOutbox
from .purge_verbs import PurgeVerbs
from .queues import QueueVerbs
from .request_verbs import RequestVerbs
from .schedules import PostgresSchedules
from .tables import DEFAULT_SCHEMA
from .waiting_count import count_waiting
from .webhooks import PostgresWebhooks

_CAPABILITIES = Capabilities(name="postgres", is_durable=True)


class PostgresDriver(ActionVerbs, LimitVerbs, LookVerbs, PostgresFlow, PurgeVerbs, QueueVerbs, RequestVerbs):
    """A store of jobs in PostgreSQL 15 or newer. What each verb promises, the protocol says.

    `owns_engine`: the engine was made for this driver, which disposes of it when closed.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        schema: str = DEFAULT_SCHEMA,
        listen_url: str | None = None,
        owns_engine: bool = False,
    ) -> None:
        super().__init__(Database(engine, schema, is_alone=owns_engine))
        self.outbox = PostgresOutbox(self._db, rings=self._db)
        self._finishes = Finishes(self)
        self.schedules = PostgresSchedules(self._db)
        self.bulk = PostgresBulk(self._db)
        self.moves = PostgresMoves(self._db)
        self.api_keys = PostgresKeys(self._db)
        self.webhooks = PostgresWebhooks(self._db)
        self._lanes = EnqueueLanes(lambda jobs: enqueue.store_each(self._db, jobs), self._db.limited.depth)
        self._listen_url = listen_url
        self._owns_engine = owns_engine
        self._capabilities = _CAPABILITIES

    @property
    def capabilities(self) -> Capabilities:
        """Give what this driver can do; once it is open, what it goes through as well."""
        return self._capabilities

    @property
    def pool(self) -> PoolUse | None:
        """Give how the connections of this process are used."""
        return self._db.pool

    async def open(self) -> None:
        """Prove that the database answers and can be worked on, and learn what stands in front of it.

        Raises:
            SchemaOutdated: migrations are missing.
            SettingsInvalid: the server is too old, would forget what it has committed, or cannot be used this way.
        """
        pooled = await examine(self._db)
        can_listen = pooled is None or self._listen_url is not None
        self._capabilities = replace(
            _CAPABILITIES, pooled=pooled, can_listen=can_listen, has_wall=self._db.api_role is not None
        )
        self.outbox.ring_on(asyncio.get_running_loop())

    async def close(self) -> None:
        """Refuse every call from now on. An engine that was not handed over is its owner's to dispose of."""
        self.outbox.ring_on(None)
        await self._finishes.close()
        await self._lanes.close()
        await self._steps.close()
        await self._db.close()
        if self._owns_engine:
            await self._db.engine.dispose()

    async def ping(self) -> None:
        """Prove that the store answers, or raise."""
        async with self._db.raw() as conn:
            await conn.execute("select 1")

    async def database_time(self) -> datetime:
        """Give the store's clock."""
        async with self._db.raw() as conn:
            now: datetime = await conn.fetchval(self._db.in_schema("select outlast.clock()"))
        return now

    # --- producers

    async def enqueue(self, job: NewJob) -> Enqueued:
        """Store one job."""
        return await enqueue.enqueue(self._db, self._lanes, job)

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        """Store many, all or none."""
        return await enqueue.enqueue_many(self._db, jobs)

    # --- workers

    async def register_worker(self, worker: NewWorker) -> WorkerId:
        """Give a new worker its id and lease."""
        return await workers.register_worker(self._db, worker)

    async def show_worker(self, worker_id: WorkerId, *, wakeup: str | None, drain: DrainShown | None) -> None:
        """Show how a worker does."""
        await workers.show_worker(self._db, worker_id, wakeup=wakeup, drain=drain)

    async def ask_drain(self, worker_id: WorkerId, *, by: str, audit: AuditEntry | None = None) -> DrainAsk:
        """Ask a worker to drain."""
        return await workers.ask_drain(self._db, worker_id, by=by, audit=audit)

    async def drains(self, *, limit: int, before: WorkerId | None = None) -> tuple[DrainView, ...]:
        """Give the reports of drained workers."""
        return await look(self._db, lambda db: drains.drains(db, limit=limit, before=before))

    async def close_worker(self, worker_id: WorkerId) -> None:
        """Close a worker in order."""
        await workers.close_worker(self._db, worker_id)

    async def surrender(self, worker_id: WorkerId) -> tuple[Reaped, ...]:
        """Give back the claims of a worker whose lease is over."""
        return await reap.surrender(self._db, worker_id)

    async def publish_job_types(self, types: Sequence[JobTypeDoc]) -> None:
        """Show the job types a worker serves."""
        await job_types.publish_job_types(self._db, types)

    async def claim(self, request: ClaimRequest) -> tuple[ClaimedJob, ...]:
        """Take ready jobs."""
        return await claim.claim(self._db, request)

    async def release(self, tokens: Sequence[ClaimToken], *, cause: str) -> int:
        """Hand claims back that were never begun."""
        return await release.release(self._db, tokens, cause=cause)

    async def reconcile(
        self, worker_id: WorkerId, held: Sequence[ClaimToken], *, before: datetime | None = None
    ) -> int:
        """Hand back claims whose reply was lost."""
        return await release.reconcile(self._db, worker_id, held, before=before)

    async def isolate(self, token: ClaimToken) -> bool:
        """Record that a job runs alone."""
        return await release.isolate(self._db, token)

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[SettleAnswer, ...]:
        """Close attempts with their outcomes."""
        return await settle.settle(self._db, settlements)

    async def settle_and_claim(
        self, settlements: Sequence[Settlement], request: ClaimRequest
    ) -> tuple[tuple[SettleAnswer, ...], tuple[ClaimedJob, ...]]:
        """Close attempts and take ready jobs in one commit."""
        return await settle_and_claim.settle_and_claim(self._db, settlements, request)

    def open_heartbeat(self) -> AbstractAsyncContextManager[HeartbeatStore]:
        """Open the heartbeat's own connection, on the calling thread's loop."""
        return heartbeat.open_heartbeat(self._db)

    # --- maintenance

    async def due(self) -> Due:
        """Say what there is to do."""
        return await due.due(self._db)

    async def reap(self, batch: int = 1000) -> tuple[Reaped, ...]:
        """Take over the claims of workers that are gone."""
        return await reap.reap(self._db, batch)

    async def promote(self, batch: int = 1000) -> int:
        """Make due jobs ready."""
        return await promote.promote(self._db, batch)

    async def expire(self, batch: int = 1000) -> tuple[Expired, ...]:
        """End waiting jobs past their time."""
        return await expire.expire(self._db, batch)

    # --- readers

    async def describe(self, job_id: JobId, *, tenant: str | None = None) -> JobView | None:
        """Give one job."""
        return await describe.describe(self._db, job_id, tenant=tenant)

    async def attempts(self, job_id: JobId, *, tenant: str | None = None) -> tuple[AttemptView, ...]:
        """Give the ledger."""
        return await describe.attempts(self._db, job_id, tenant=tenant)

    async def list(self, query: ListQuery) -> JobPage:
        """Give one page of jobs."""
        return await look(self._db, lambda db: listing.list_jobs(db, query))

    async def list_by_time(self, query: ListQuery, order: TimeOrder) -> PlacedPage:
        """Give one page of jobs in the order of a time."""
        return await look(self._db, lambda db: listing_by_time.list_by_time(db, query, order))

    async def count_jobs(self, query: ListQuery) -> JobCount:
        """Count the jobs that fit."""
        return await look(self._db, lambda db: counting.count_jobs(db, query))

    async def count_waiting(self, tenant: str, most: int) -> int:
        """Count a tenant's ready and delayed jobs."""
        return await count_waiting(self._db, tenant, most)

    async def dead_letters(self, *, tenant: str | None = None) -> tuple[DeadGroup, ...]:
        """Group dead letters."""
        return await look(self._db, lambda db: dead_letters.dead_letters(db, tenant=tenant))

    async def finished_among(self, job_ids: Sequence[JobId]) -> frozenset[JobId]:
        """Say which jobs have ended."""
        return await describe.finished_among(self._db, job_ids)

    async def until_finished(self, job_id: JobId) -> None:
        """Return as soon as a job has ended."""
        await self._finishes.until(job_id)

    def heard(self, ear: Callable[[Wake], None]) -> AbstractContextManager[None]:
        """Hear wake-ups beside those who wait."""
        return self._finishes.heard(ear)

    async def stats(self) -> Stats:
        """Count jobs."""
        return await look(self._db, stats.stats)

    async def queues(self) -> tuple[QueueView, ...]:
        """Give every queue."""
        return await look(self._db, stats.queues)

    async def workers(self) -> tuple[WorkerView, ...]:
        """Give the workers."""
        return await look(self._db, workers.workers)

    async def job_types(self) -> tuple[JobTypeDoc, ...]:
        """Give every published job type."""
        return await job_types.job_types(self._db)

    def listen(
        self, on_wake: Callable[[Wake], None], *, news: frozenset[Wake] = NEWS
    ) -> AbstractAsyncContextManager[None]:
        """Hear wake-ups while the context is open."""
        return listen.listen(self._db, on_wake, news=news, listen_url=self._listen_url)


_: type[JobDriver] = PostgresDriver
