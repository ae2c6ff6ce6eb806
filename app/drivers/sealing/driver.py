"""The driver over a driver: verbs that carry what users wrote seal it on the way in and open it on the way out.

A verb that is not here carries nothing of the kind, and is the store's own; a test holds both lists together. Without a
codec there is no such driver at all: nothing costs anything. Built by the composition root.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, cast

from ...domain.audit import AuditEntry
from ...domain.event import Emitted, EventQuery, EventView, NewEvent
from ...domain.job import ClaimedJob, ClaimToken, Enqueued, JobId, NewJob, RunId
from ...domain.limit import Admitted
from ...domain.outcome import SettleAnswer, Settlement
from ...domain.reason import Situation
from ...domain.request_claim import KeptAnswer, NewRequest, RequestClaim
from ...domain.sealed import PayloadCodec, Seals, is_sealed, of_answer, readable
from ...domain.snapshot import AttemptView, DeadGroup, JobPage, JobView, PlacedPage
from ...domain.step import NewNotes, NewStep, RunHistory, RunView
from ..capabilities import PoolUse, pool_of
from ..outbox import outbox_of
from ..protocol import ClaimRequest, JobDriver
from ..reading import ListQuery, TimeOrder
from ..schedules import schedules_of
from ..webhooks import webhooks_of
from .stores import SealingOutbox, SealingSchedules, SealingWebhooks
from .words import Words

# Stores beside the jobs that hold nothing of what users wrote, or carry it as it lies.
_AS_THEY_ARE = ("api_keys", "bulk", "moves")


def sealing(driver: JobDriver, codec: PayloadCodec) -> JobDriver:
    """Give a driver that keeps payloads, results, values, events, lines and errors encrypted in another's store."""
    return cast("JobDriver", SealingDriver(driver, codec))


class SealingDriver:
    """What `sealing` gives. What each verb promises, the protocol says."""

    def __init__(self, driver: JobDriver, codec: PayloadCodec) -> None:
        self._driver = driver
        self._words = words = Words(Seals(codec))
        # Attributes of its own, so that whoever asks what a driver has sees what this one has.
        for name in _AS_THEY_ARE:
            if hasattr(driver, name):
                setattr(self, name, getattr(driver, name))
        if (outbox := outbox_of(driver)) is not None:
            self.outbox = SealingOutbox(outbox, words)
        if (schedules := schedules_of(driver)) is not None:
            self.schedules = SealingSchedules(schedules, words)
        if (webhooks := webhooks_of(driver)) is not None:
            self.webhooks = SealingWebhooks(webhooks, words)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._driver, name)

    @property
    def pool(self) -> PoolUse | None:
        """Give how the connections of this process are used."""
        return pool_of(self._driver)

    # --- producers

    async def enqueue(self, job: NewJob) -> Enqueued:
        """See `JobDriver`."""
        return await self._driver.enqueue(self._words.job(job))

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        """See `JobDriver`."""
        return await self._driver.enqueue_many([self._words.job(job) for job in jobs])

    async def enqueue_once(self, jobs: Sequence[NewJob], claim: RequestClaim) -> tuple[Enqueued, ...]:
        """See `RequestStore`."""
        return await self._driver.enqueue_once([self._words.job(job) for job in jobs], claim)

    async def place(self, job: NewJob, *, audit: AuditEntry) -> Enqueued:
        """See `ActionStore`."""
        return await self._driver.place(self._words.job(job), audit=audit)

    async def emit(self, event: NewEvent) -> Emitted:
        """See `RunStore`."""
        return await self._driver.emit(self._words.event(event))

    async def emit_once(self, event: NewEvent, claim: RequestClaim) -> Emitted:
        """See `RequestStore`."""
        return await self._driver.emit_once(self._words.event(event), claim)

    async def fork(
        self,
        job_id: JobId,
        *,
        new_id: JobId,
        from_step: str | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> Enqueued:
        """See `RunStore`."""
        return await self._driver.fork(
            job_id, new_id=new_id, from_step=from_step, tenant=tenant, audit=audit, recode=self._words
        )

    # --- workers

    async def claim(self, request: ClaimRequest) -> tuple[ClaimedJob, ...]:
        """See `FleetStore`."""
        return tuple(map(self._words.claimed, await self._driver.claim(request)))

    async def admit(self, request: ClaimRequest) -> Admitted:
        """See `LimitStore`."""
        found = await self._driver.admit(request)
        return replace(found, jobs=tuple(map(self._words.claimed, found.jobs)))

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[SettleAnswer, ...]:
        """See `FleetStore`."""
        return await self._driver.settle([self._words.settlement(one) for one in settlements])

    async def settle_and_claim(
        self, settlements: Sequence[Settlement], request: ClaimRequest
    ) -> tuple[tuple[SettleAnswer, ...], tuple[ClaimedJob, ...]]:
        """See `FleetStore`."""
        sealed = [self._words.settlement(one) for one in settlements]
        answers, claimed = await self._driver.settle_and_claim(sealed, request)
        return answers, tuple(map(self._words.claimed, claimed))

    async def record_step(self, token: ClaimToken, step: NewStep) -> bool:
        """See `RunStore`."""
        return await self._driver.record_step(token, self._words.step(token.job_id, step))

    def step_transaction(
        self, token: ClaimToken, step: NewStep, *, bind: object | None = None
    ) -> AbstractAsyncContextManager[Any]:
        """See `RunStore`."""
        return self._driver.step_transaction(token, self._words.step(token.job_id, step), bind=bind)

    async def note(self, notes: Sequence[NewNotes]) -> int:
        """See `RunStore`."""
        return await self._driver.note([self._words.notes(one) for one in notes])

    async def history(self, job_id: JobId, run_id: RunId) -> RunHistory:
        """See `RunStore`."""
        return self._words.history(job_id, await self._driver.history(job_id, run_id))

    # --- readers

    async def describe(self, job_id: JobId, *, tenant: str | None = None) -> JobView | None:
        """See `ReadStore`."""
        view = await self._driver.describe(job_id, tenant=tenant)
        return None if view is None else self._words.view(view)

    async def situation(self, job_id: JobId, *, tenant: str | None = None) -> Situation | None:
        """See `ReadStore`."""
        found = await self._driver.situation(job_id, tenant=tenant)
        return None if found is None else replace(found, job=self._words.view(found.job))

    async def attempts(self, job_id: JobId, *, tenant: str | None = None) -> tuple[AttemptView, ...]:
        """See `ReadStore`."""
        found = await self._driver.attempts(job_id, tenant=tenant)
        return tuple(self._words.attempt(job_id, attempt) for attempt in found)

    async def list(self, query: ListQuery) -> JobPage:
        """See `ReadStore`."""
        page = await self._driver.list(query)
        return replace(page, items=tuple(map(self._words.view, page.items)))

    async def list_by_time(self, query: ListQuery, order: TimeOrder) -> PlacedPage:
        """See `ReadStore`."""
        page = await self._driver.list_by_time(query, order)
        return replace(page, items=tuple(map(self._words.view, page.items)))

    async def run(
        self, job_id: JobId, *, tenant: str | None = None, after: int = 0, values: int | None = None
    ) -> RunView | None:
        """See `RunStore`."""
        found = await self._driver.run(job_id, tenant=tenant, after=after, values=values)
        return None if found is None else self._words.run(job_id, found)

    async def dead_letters(self, *, tenant: str | None = None) -> tuple[DeadGroup, ...]:
        """See `ReadStore`. A group has the beginning of a message, which cannot be opened without its end."""
        groups = await self._driver.dead_letters(tenant=tenant)
        return tuple(
            replace(group, error_message=None) if is_sealed(group.error_message or "") else group for group in groups
        )

    async def events(self, query: EventQuery) -> tuple[EventView, ...]:
        """See `RunStore`."""
        return tuple(map(self._words.shown_event, await self._driver.events(query)))

    # --- requests with a key of their own

    async def claim_request(self, request: NewRequest) -> RequestClaim | KeptAnswer:
        """See `RequestStore`. Raises `PAYLOAD_UNREADABLE` for an answer that another process has sealed."""
        found = await self._driver.claim_request(request)
        if not isinstance(found, KeptAnswer):
            return found
        return replace(found, body=readable(self._words.seals.open(found.body, of_answer(request.id))) or "")

    async def answer_request(self, claim: RequestClaim, answer: KeptAnswer) -> None:
        """See `RequestStore`."""
        sealed = replace(answer, body=self._words.seals.seal(answer.body, of_answer(claim.id)))
        await self._driver.answer_request(claim, sealed)
