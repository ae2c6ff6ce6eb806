"""Hands ends of jobs that are to be told to the jobs that carry them; any worker may, and none leads.

Begins when a look for what is due has found some, or a job with a callback has just ended here, and ends when there is
none left. A drain ends it behind the batch at hand; whoever looks next goes on from there. Made by `session`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..domain.job import NewJob
from ..domain.webhook import Delivery
from ..drivers.webhooks import WebhookStore
from ..lifecycle.tasks import first_of
from ..observability.telemetry import Telemetry

_BATCH = 500


class Tellings:
    """The handing on in one life of a worker. `make` gives the job that carries a delivery."""

    def __init__(
        self,
        store: WebhookStore | None,
        *,
        make: Callable[[Delivery], NewJob],
        telemetry: Telemetry,
        leaving: asyncio.Event,
    ) -> None:
        self._store = store
        self._make = make
        self._telemetry = telemetry
        self._leaving = leaving
        self._has_work = asyncio.Event()

    def wake(self) -> None:
        """Begin: there are ends to be told."""
        self._has_work.set()

    async def tell(self) -> None:
        """Hand on what there is, until leaving."""
        while not self._leaving.is_set():
            await first_of(self._leaving, self._has_work)
            self._has_work.clear()
            if self._store is not None and not self._leaving.is_set():
                await self._hand_on(self._store)

    async def _hand_on(self, store: WebhookStore) -> None:
        """Hand on a batch, and come again when there may be more."""
        try:
            if await store.carry(self._make, batch=_BATCH) >= _BATCH:
                self._has_work.set()
                await asyncio.sleep(0)  # a store in this process answers without giving way
        except Exception as error:  # noqa: BLE001 - said; a later look for what is due finds them again
            self._telemetry.store_call_failed("webhooks.carry", error)
