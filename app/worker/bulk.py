"""Works bulk operations off, batch by batch, beside what the worker runs; any worker may, and none leads.

Begins when a look for what is due has found some, and ends when there is nothing left to do here: another worker has
the operation in hand, or it is done. A drain ends it behind the batch at hand; whoever looks next goes on from there.
Made by `session`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from ..domain.bulk import BulkId, BulkStep
from ..drivers.bulk import BulkStore
from ..lifecycle.tasks import first_of
from ..observability.telemetry import Telemetry

T = TypeVar("T")

# When all jobs of a batch are in somebody's hands, they are looked at again a moment later, then more and more seldom.
_SHORTEST_REST_SECONDS = 0.05
_LONGEST_REST_SECONDS = 1.0


class BulkRunner:
    """The bulk operations in one life of a worker."""

    def __init__(self, store: BulkStore | None, *, telemetry: Telemetry, leaving: asyncio.Event) -> None:
        self._store = store
        self._telemetry = telemetry
        self._leaving = leaving
        self._has_work = asyncio.Event()

    def wake(self) -> None:
        """Begin: there are operations that run, or old ones to delete."""
        self._has_work.set()

    async def bulk(self) -> None:
        """Work off what there is, until leaving."""
        while not self._leaving.is_set():
            await first_of(self._leaving, self._has_work)
            self._has_work.clear()
            if self._store is not None and not self._leaving.is_set():
                await self._work_off(self._store)

    async def _work_off(self, store: BulkStore) -> None:
        last: BulkId | None = None
        rest = _SHORTEST_REST_SECONDS
        while not self._leaving.is_set():
            step: BulkStep | None = await self._try("bulk.step", store.step(after=last))
            if step is None:
                break
            last = step.view.id
            self._telemetry.bulk_stepped(step)
            if step.has_decided:
                rest = _SHORTEST_REST_SECONDS
                await asyncio.sleep(0)  # a store in this process answers without giving way
                continue
            await first_of(self._leaving, within=rest)
            rest = min(2 * rest, _LONGEST_REST_SECONDS)
        while not self._leaving.is_set():
            if not await self._try("bulk.trim", store.trim()):
                break
            await asyncio.sleep(0)  # same

    async def _try(self, verb: str, call: Awaitable[T]) -> T | None:
        try:
            return await call
        except Exception as error:  # noqa: BLE001 - said; a later look for what is due finds the operation again
            self._telemetry.store_call_failed(verb, error)
            return None
