"""The stores beside a driver's jobs that take jobs in: outbox, schedules, webhooks. What they store of them is sealed.

All they do otherwise is the store's own, and reached through here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ...domain.audit import AuditEntry
from ...domain.job import NewJob
from ...domain.schedule import Decided, Plan
from ...domain.webhook import Delivery
from ..outbox import OutboxStore
from ..schedules import ScheduleStore
from ..webhooks import WebhookStore
from .words import Words


class SealingOutbox:
    """An outbox whose rows are staged sealed. Relays publish them as they lie, and need no key."""

    def __init__(self, store: OutboxStore[Any], words: Words) -> None:
        self._store = store
        self._words = words

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._store, name)

    async def find(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the store's own; here to be seen by `StagedReader`
        """See `StagedReader.find`."""
        return await self._store.find(*args, **kwargs)

    async def stage(self, transaction: object, jobs: Sequence[NewJob]) -> None:
        """See `Stager.stage`."""
        await self._store.stage(transaction, [self._words.job(job) for job in jobs])

    def stage_now(self, transaction: object, jobs: Sequence[NewJob]) -> None:
        """See `Stager.stage_now`."""
        self._store.stage_now(transaction, [self._words.job(job) for job in jobs])


class SealingSchedules:
    """Schedules whose jobs are sealed; what a declaration says of their payload stays as it is in the code."""

    def __init__(self, store: ScheduleStore, words: Words) -> None:
        self._store = store
        self._words = words

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._store, name)

    async def decide(self, plan: Plan) -> tuple[Decided, ...] | None:
        """See `ScheduleStore.decide`."""
        planned = [one if one.job is None else replace(one, job=self._words.job(one.job)) for one in plan.planned]
        return await self._store.decide(replace(plan, planned=tuple(planned)))

    async def fire(self, name: str, job: NewJob, *, by: str, audit: AuditEntry | None = None) -> Decided:
        """See `ScheduleStore.fire`."""
        return await self._store.fire(name, self._words.job(job), by=by, audit=audit)


class SealingWebhooks:
    """Webhooks whose deliveries are carried by jobs with sealed payloads."""

    def __init__(self, store: WebhookStore, words: Words) -> None:
        self._store = store
        self._words = words

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._store, name)

    async def carry(self, make: Callable[[Delivery], NewJob], *, batch: int = 500) -> int:
        """See `WebhookStore.carry`."""
        return await self._store.carry(lambda delivery: self._words.job(make(delivery)), batch=batch)
