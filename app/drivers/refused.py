"""Stores that are not built: `redis://` and `nats://` addresses are understood and refused, by every method.

Refusing at once is the point: a job accepted and dropped is worse than one refused. Built by the composition root.
"""

# ruff: noqa: ARG002, D102 - the signatures are the protocol's, and no argument matters

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

from ..domain.audit import AuditEntry, AuditPage, AuditQuery
from ..domain.drain import DrainAsk, DrainShown, DrainView
from ..domain.edit import JobPatch, RunNowVerdict
from ..domain.errors import NotImplementedYet
from ..domain.event import Emitted, EventQuery, EventView, NewEvent
from ..domain.job import ClaimedJob, ClaimToken, Enqueued, JobId, NewJob, RunId, WorkerId
from ..domain.outcome import CancelVerdict, SettleAnswer, Settlement
from ..domain.queue import QueueChange, QueueFacts
from ..domain.reason import Situation
from ..domain.retention import Chore, EndedRule, Purged, Retention, TableRule, Tidied
from ..domain.sealed import Recode
from ..domain.snapshot import (
    AttemptView,
    Due,
    Expired,
    JobTypeDoc,
    JobView,
    NewWorker,
    QueueView,
    Reaped,
    Stats,
    WorkerView,
)
from ..domain.step import NewNotes, NewStep, RetryMode, RunHistory, RunView
from ..domain.vitals import Vitals
from .capabilities import Capabilities
from .protocol import NEWS, ClaimRequest, HeartbeatStore, JobDriver, PurgeQuery, Wake
from .purging import BATCH, NO_REST
from .refused_limits import RefusedLimits
from .refused_reads import RefusedReads
from .refused_requests import RefusedRequests
from .runs import Swept

REFUSED_SCHEMES = frozenset({"redis", "rediss", "nats"})


class RefusedDriver(RefusedLimits, RefusedReads, RefusedRequests):
    """A `JobDriver` for a store that is not built: it knows its name and refuses everything else."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme

    @property
    def capabilities(self) -> Capabilities:
        """Say that nothing is kept."""
        return Capabilities(name=self._scheme, is_durable=False)

    async def open(self) -> None:
        raise self._refusal()

    async def close(self) -> None:
        raise self._refusal()

    async def ping(self) -> None:
        raise self._refusal()

    async def enqueue(self, job: NewJob) -> Enqueued:
        raise self._refusal()

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        raise self._refusal()

    async def register_worker(self, worker: NewWorker) -> WorkerId:
        raise self._refusal()

    async def show_worker(self, worker_id: WorkerId, *, wakeup: str | None, drain: DrainShown | None) -> None:
        raise self._refusal()

    async def ask_drain(self, worker_id: WorkerId, *, by: str, audit: AuditEntry | None = None) -> DrainAsk:
        raise self._refusal()

    async def drains(self, *, limit: int, before: WorkerId | None = None) -> tuple[DrainView, ...]:
        raise self._refusal()

    async def close_worker(self, worker_id: WorkerId) -> None:
        raise self._refusal()

    async def surrender(self, worker_id: WorkerId) -> tuple[Reaped, ...]:
        raise self._refusal()

    async def publish_job_types(self, types: Sequence[JobTypeDoc]) -> None:
        raise self._refusal()

    async def claim(self, request: ClaimRequest) -> tuple[ClaimedJob, ...]:
        raise self._refusal()

    async def release(self, tokens: Sequence[ClaimToken], *, cause: str) -> int:
        raise self._refusal()

    async def reconcile(
        self, worker_id: WorkerId, held: Sequence[ClaimToken], *, before: datetime | None = None
    ) -> int:
        raise self._refusal()

    async def isolate(self, token: ClaimToken) -> bool:
        raise self._refusal()

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[SettleAnswer, ...]:
        raise self._refusal()

    async def settle_and_claim(
        self, settlements: Sequence[Settlement], request: ClaimRequest
    ) -> tuple[tuple[SettleAnswer, ...], tuple[ClaimedJob, ...]]:
        raise self._refusal()

    def open_heartbeat(self) -> AbstractAsyncContextManager[HeartbeatStore]:
        raise self._refusal()

    async def due(self) -> Due:
        raise self._refusal()

    async def reap(self, batch: int = 1000) -> tuple[Reaped, ...]:
        raise self._refusal()

    async def promote(self, batch: int = 1000) -> int:
        raise self._refusal()

    async def expire(self, batch: int = 1000) -> tuple[Expired, ...]:
        raise self._refusal()

    async def purge(self, query: PurgeQuery) -> int:
        raise self._refusal()

    async def tidy(
        self,
        chore: Chore,
        retention: Retention,
        *,
        batch: int = BATCH,
        rest: timedelta = NO_REST,
        now: bool = False,
    ) -> Tidied:
        raise self._refusal()

    async def tidy_table(
        self, rule: TableRule, *, blocks: int = 128, rest: timedelta = NO_REST, now: bool = False
    ) -> Tidied:
        raise self._refusal()

    async def purge_ended(
        self, rule: EndedRule, *, after: JobId | None = None, batch: int = BATCH, dry: bool = False
    ) -> Purged:
        raise self._refusal()

    async def count_over(self, chore: Chore, retention: Retention) -> int:
        raise self._refusal()

    async def count_table(self, rule: TableRule) -> int:
        raise self._refusal()

    async def cancel(
        self, job_id: JobId, *, reason: str, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> CancelVerdict:
        raise self._refusal()

    async def retry(
        self,
        job_id: JobId,
        *,
        mode: RetryMode = RetryMode.RESUME,
        from_step: str | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        raise self._refusal()

    async def run_now(
        self, job_id: JobId, *, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> RunNowVerdict:
        raise self._refusal()

    async def patch(
        self,
        job_id: JobId,
        patch: JobPatch,
        *,
        versions: frozenset[str] | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        raise self._refusal()

    async def delete(
        self,
        job_id: JobId,
        *,
        versions: frozenset[str] | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        raise self._refusal()

    async def place(self, job: NewJob, *, audit: AuditEntry) -> Enqueued:
        raise self._refusal()

    async def keep_entry(self, entry: AuditEntry) -> None:
        raise self._refusal()

    async def audit(self, query: AuditQuery) -> AuditPage:
        raise self._refusal()

    async def history(self, job_id: JobId, run_id: RunId) -> RunHistory:
        raise self._refusal()

    async def record_step(self, token: ClaimToken, step: NewStep) -> bool:
        raise self._refusal()

    def step_transaction(
        self, token: ClaimToken, step: NewStep, *, bind: object | None = None
    ) -> AbstractAsyncContextManager[Any]:
        raise self._refusal()

    async def note(self, notes: Sequence[NewNotes]) -> int:
        raise self._refusal()

    async def wake(self, batch: int = 1000) -> int:
        raise self._refusal()

    async def sweep_waits(self, after: JobId | None = None, batch: int = 1000) -> Swept:
        raise self._refusal()

    async def release_due(self, batch: int = 1000) -> int:
        raise self._refusal()

    async def emit(self, event: NewEvent) -> Emitted:
        raise self._refusal()

    async def release_held(self, job_id: JobId, *, tenant: str | None = None, audit: AuditEntry | None = None) -> None:
        raise self._refusal()

    async def fork(
        self,
        job_id: JobId,
        *,
        new_id: JobId,
        from_step: str | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
        recode: Recode | None = None,
    ) -> Enqueued:
        raise self._refusal()

    async def run(
        self, job_id: JobId, *, tenant: str | None = None, after: int = 0, values: int | None = None
    ) -> RunView | None:
        raise self._refusal()

    async def events(self, query: EventQuery) -> tuple[EventView, ...]:
        raise self._refusal()

    async def describe(self, job_id: JobId, *, tenant: str | None = None) -> JobView | None:
        raise self._refusal()

    async def situation(self, job_id: JobId, *, tenant: str | None = None) -> Situation | None:
        raise self._refusal()

    async def attempts(self, job_id: JobId, *, tenant: str | None = None) -> tuple[AttemptView, ...]:
        raise self._refusal()

    async def finished_among(self, job_ids: Sequence[JobId]) -> frozenset[JobId]:
        raise self._refusal()

    async def until_finished(self, job_id: JobId) -> None:
        raise self._refusal()

    def heard(self, ear: Callable[[Wake], None]) -> AbstractContextManager[None]:
        raise self._refusal()

    async def stats(self) -> Stats:
        raise self._refusal()

    async def queues(self) -> tuple[QueueView, ...]:
        raise self._refusal()

    async def pause_queue(
        self,
        queue: str,
        *,
        by: str,
        reason: str | None = None,
        until: datetime | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        raise self._refusal()

    async def resume_queue(self, queue: str, *, audit: AuditEntry | None = None) -> None:
        raise self._refusal()

    async def set_queue(
        self,
        queue: str,
        change: QueueChange,
        *,
        versions: frozenset[str] | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        raise self._refusal()

    async def queue_facts(self, queue: str) -> QueueFacts:
        raise self._refusal()

    async def workers(self) -> tuple[WorkerView, ...]:
        raise self._refusal()

    async def job_types(self) -> tuple[JobTypeDoc, ...]:
        raise self._refusal()

    async def vitals(self) -> Vitals:
        raise self._refusal()

    async def database_time(self) -> datetime:
        raise self._refusal()

    def listen(
        self, on_wake: Callable[[Wake], None], *, news: frozenset[Wake] = NEWS
    ) -> AbstractAsyncContextManager[None]:
        raise self._refusal()

    def _refusal(self) -> NotImplementedYet:
        return NotImplementedYet(
            f"there is no driver for {self._scheme}:// yet",
            fix="set OUTLAST_DATABASE_URL to a postgresql:// address; no job was accepted here, none has to be moved",
        )


_: type[JobDriver] = RefusedDriver
