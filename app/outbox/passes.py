"""One pass of a relay: take staged rows, publish them, let them go.

Two ways, chosen where the process is composed: in one transaction where outbox and jobs are in one database, else
through the driver under a lease. Either way a pass that is cut anywhere and done again makes no second job: the row's
id is the job's source. Driven by `relay`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from ..domain.job import Enqueued
from ..domain.outbox import (
    Pass,
    Refusal,
    RelayId,
    StagedRow,
    failure_of,
    is_for_full_queue,
    is_of_the_row,
    summed,
    unfit,
)
from ..drivers.outbox import OutboxStore
from ..drivers.protocol import JobDriver

# A keyed job that is enqueued by itself takes a connection of the pool.
_AT_ONCE = 4


class Passes(Protocol):
    """The passes of one life of a relay, one after the other."""

    async def once(self, batch: int) -> Pass:
        """Publish up to `batch` rows."""
        ...

    async def leave(self) -> None:
        """Hand back what is still claimed; nothing is done after it."""
        ...


class SharedPasses:
    """Passes where one database holds both: nothing is ever claimed beyond a pass."""

    def __init__(self, outbox: OutboxStore[Any]) -> None:
        self._outbox = outbox

    async def once(self, batch: int) -> Pass:
        """Publish in one transaction."""
        return await self._outbox.publish(batch)

    async def leave(self) -> None:
        """Hand back nothing."""


class DriverPasses:
    """Passes from one database into another: claim under a lease, publish through the driver, then let go.

    A row that could not be published for now is handed back; what the driver refuses for ever is quarantined.
    """

    def __init__(self, outbox: OutboxStore[Any], driver: JobDriver, relay_id: RelayId) -> None:
        self._outbox = outbox
        self._driver = driver
        self._relay_id = relay_id
        self._is_doubtful = False  # whether the store may hold claims of this relay that no pass is about

    async def once(self, batch: int) -> Pass:
        """Claim, publish, let go; after a failure first hand back what the last pass may have left claimed."""
        if self._is_doubtful:
            await self._outbox.release(self._relay_id)
        self._is_doubtful = True
        claimed = await self._outbox.claim(self._relay_id, batch)
        done = await self._publish(claimed.rows) if claimed.rows else Pass()
        self._is_doubtful = False
        return replace(done, is_full=claimed.is_full)

    async def leave(self) -> None:
        """Hand back what a failed pass may have left claimed."""
        if self._is_doubtful:
            await self._outbox.release(self._relay_id)
            self._is_doubtful = False

    async def _publish(self, rows: Sequence[StagedRow]) -> Pass:
        refusals: list[Refusal] = []
        fit: list[StagedRow] = []
        for row in rows:
            refusal = unfit(row)
            if refusal is None:
                fit.append(row)
            else:
                refusals.append(refusal)
        answers: list[tuple[StagedRow, Enqueued]] = []
        full: list[StagedRow] = []
        failure: BaseException | None = None
        for row, verdict in zip(fit, await self._enqueue(fit), strict=True):
            if isinstance(verdict, Enqueued):
                answers.append((row, verdict))
            elif is_for_full_queue(verdict):
                full.append(row)
            elif is_of_the_row(verdict):
                refusals.append(failure_of(row, verdict))
            else:
                failure = failure or verdict
        await self._let_go(answers, refusals, full)
        if failure is not None:
            raise failure
        published, deduped = summed(answers)
        return Pass(published=published, deduped=deduped, deferred=len(full), quarantined=tuple(refusals))

    async def _enqueue(self, rows: Sequence[StagedRow]) -> Sequence[Enqueued | BaseException]:
        """Enqueue all at once, or each by itself when one is refused: it must not refuse the others."""
        try:
            return await self._driver.enqueue_many([row.job for row in rows])
        except Exception as error:
            if not (is_of_the_row(error) or is_for_full_queue(error)):
                raise
        few = asyncio.Semaphore(_AT_ONCE)

        async def one(row: StagedRow) -> Enqueued:
            async with few:
                return await self._driver.enqueue(row.job)

        return await asyncio.gather(*map(one, rows), return_exceptions=True)

    async def _let_go(
        self, answers: Sequence[tuple[StagedRow, Enqueued]], refusals: Sequence[Refusal], full: Sequence[StagedRow]
    ) -> None:
        if answers:
            await self._outbox.end(self._relay_id, [row.id for row, _ in answers])
        if refusals:
            await self._outbox.quarantine(self._relay_id, refusals)
        if full:
            await self._outbox.defer(self._relay_id, [row.id for row in full])
