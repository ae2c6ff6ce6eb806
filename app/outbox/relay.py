"""The relay role: publishes the outbox, pass after pass, by itself or beside any number of others.

Work is found by polling; a wake-up after a caller's commit only makes the next pass sooner. Told to leave it begins
nothing more, and the pass in flight is waited for. It claims nothing beyond a pass. Built by the composition root.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ..domain.outbox import Pass
from ..domain.retry import RetryPolicy
from ..drivers.outbox import OutboxStore
from ..drivers.protocol import JobDriver, Wake
from ..lifecycle.drain import DrainBudget
from ..lifecycle.role import Life, Role
from ..lifecycle.tasks import first_of, start_task
from ..observability.telemetry import Telemetry
from .passes import Passes

_NEWS = frozenset({Wake.STAGED})

# Short, so that publishing goes on within seconds of the store's return; drawn at random, so that a fleet does not
# come back as one.
_BACKOFF = RetryPolicy(backoff=timedelta(milliseconds=200), max_backoff=timedelta(seconds=2))


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOptions:
    """`batch` rows a pass at most; a look every `poll` while nothing wakes; lost leases and lag every `sweep`.

    Wake-ups are not sent by every caller: a bare connection tells nobody of its commit. So the poll is short.
    """

    batch: int = 500
    poll: timedelta = timedelta(seconds=1)
    sweep: timedelta = timedelta(seconds=5)


class Relay(Role):
    """Publishes one outbox.

    `driver` tells when something was staged, `new_passes` gives the passes of one life, `roll` numbers in [0, 1).
    """

    def __init__(
        self,
        *,
        outbox: OutboxStore[Any],
        new_passes: Callable[[], Passes],
        driver: JobDriver,
        telemetry: Telemetry,
        roll: Callable[[], float],
        options: RelayOptions | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        name: str = "relay",
    ) -> None:
        super().__init__(name, monotonic=monotonic)
        self._outbox = outbox
        self._new_passes = new_passes
        self._driver = driver
        self._telemetry = telemetry
        self._roll = roll
        self._options = options or RelayOptions()
        self._news = asyncio.Event()
        self._abandoned = 0

    @property
    def abandoned(self) -> int:
        """Give 1 when the last life cut a pass because its time was over."""
        return self._abandoned

    async def live(self, life: Life) -> None:
        """Publish until told to leave, wait for the pass in flight, hand back what it left."""
        self._abandoned = 0
        self._news.clear()
        passes = self._new_passes()
        over = asyncio.Event()
        async with self._driver.listen(self._heard, news=_NEWS):
            work = start_task(self._work(life, passes), name="outlast.relay.passes")
            work.add_done_callback(lambda _: over.set())
            life.running()
            self._telemetry.relay_started()
            try:
                await first_of(life.is_leaving, over)
                if not await life.budget.wait(over, until=_abandon_at):
                    self._abandoned = 1
            finally:
                life.idle()
                work.cancel()
                await asyncio.wait({work})
        if not work.cancelled():
            work.result()
        await self._leave(life, passes)
        self._telemetry.relay_stopped()

    async def _work(self, life: Life, passes: Passes) -> None:
        failures = 0
        sweep_at = self._monotonic()
        while not life.is_leaving.is_set():
            self._news.clear()
            try:
                if self._monotonic() >= sweep_at:
                    await self._sweep()
                    sweep_at = self._monotonic() + self._options.sweep.total_seconds()
                done = Pass() if life.is_leaving.is_set() else await passes.once(self._options.batch)
            except Exception as error:  # noqa: BLE001 - said, and done again after a pause
                self._telemetry.outbox_pass_failed(error)
                failures += 1
                pause = _BACKOFF.delay_after(failures, self._roll())
                await first_of(life.is_leaving, within=pause.total_seconds())
                continue
            failures = 0
            self._telemetry.outbox_passed(done)
            if not done.is_full:
                await first_of(life.is_leaving, self._news, within=self._options.poll.total_seconds())

    async def _sweep(self) -> None:
        """Stage again what lost relays had claimed, and show how far the outbox is."""
        recovered = await self._outbox.recover()
        if recovered:
            self._telemetry.outbox_recovered(recovered)
        self._telemetry.outbox_seen(await self._outbox.view(0))

    async def _leave(self, life: Life, passes: Passes) -> None:
        """Hand back, within what is left of the time; what stays claimed is recovered when its lease is over."""
        try:
            async with asyncio.timeout(life.budget.remaining(life.budget.deadline)):
                await passes.leave()
        except Exception as error:  # noqa: BLE001 - said; the lease gives the rows back
            self._telemetry.outbox_pass_failed(error)

    def _heard(self, wake: Wake) -> None:
        if wake in (Wake.STAGED, Wake.LISTENING):
            self._news.set()


def _abandon_at(budget: DrainBudget) -> float | None:
    return budget.abandon_at
