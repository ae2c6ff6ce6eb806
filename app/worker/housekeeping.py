"""What is over is deleted by any worker, step by step, beside its jobs; no leader, and nobody waits for it.

The store lets one process at a time take a step of each kind and says when a kind rests, so a larger fleet deletes no
faster and asks little. Between two steps at least as long as the step took passes: claims come first. Told to leave it
takes no further step; the one in flight is waited for, and whoever comes next goes on behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from ..domain.retention import Chore, Retention, TableRule, Tidied
from ..drivers.protocol import JobDriver
from ..jobs.describe import published_retentions
from ..lifecycle.tasks import first_of
from ..observability.telemetry import Telemetry
from .options import WorkerOptions

_SHORTEST_PAUSE_SECONDS = 0.01


class Step(Protocol):
    """Takes one step of one kind under a retention."""

    async def __call__(self, retention: Retention) -> Tidied:
        """Take it."""
        ...


@dataclass(slots=True)
class _Round:
    """What this process deleted of a kind since it last saw a round end, and for how long."""

    count: int = 0
    seconds: float = 0.0


class Housekeeping:
    """The deleting of one life of a worker."""

    def __init__(
        self,
        *,
        driver: JobDriver,
        options: WorkerOptions,
        telemetry: Telemetry,
        leaving: asyncio.Event,
        tables: tuple[TableRule, ...],
        roll: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._driver = driver
        self._telemetry = telemetry
        self._leaving = leaving
        self._retention = options.retention
        self._rest = options.purge_every
        self._roll = roll
        self._monotonic = monotonic
        self._steps: dict[str, Step] = {chore.value: self._chore(chore) for chore in Chore}
        self._steps |= {f"table {rule.table}": self._table(rule) for rule in tables}
        self._rounds = {kind: _Round() for kind in self._steps}

    async def run(self) -> None:
        """Look at every kind now and then, and as long as there is something of it, until leaving."""
        while not self._leaving.is_set():
            await first_of(self._leaving, within=self._rest.total_seconds() * (1 - self._roll() / 2))
            if not self._leaving.is_set():
                await self._once()

    async def _once(self) -> None:
        try:
            published = await self._driver.job_types()
        except Exception as error:  # noqa: BLE001 - said; without the job types nothing may be judged
            self._telemetry.purge_failed(Chore.JOBS.value, error)
            return
        retention = replace(self._retention, by_name=published_retentions(published))
        due = list(self._steps)
        while due and not self._leaving.is_set():
            for kind in list(due):
                if self._leaving.is_set():
                    return
                if not await self._goes_on(kind, retention):
                    due.remove(kind)

    async def _goes_on(self, kind: str, retention: Retention) -> bool:
        """Take a step and pause for as long; says whether there is more to do."""
        began = self._monotonic()
        try:
            step = await self._steps[kind](retention)
        except Exception as error:  # noqa: BLE001 - a table of the application's has rules of its own
            self._telemetry.purge_failed(kind, error)
            return False
        seconds = self._monotonic() - began
        self._telemetry.purge_seen(kind, step.behind)
        if not step.is_idle:
            self._tell(kind, step, seconds)
        if not step.is_over:
            await first_of(self._leaving, within=max(seconds, _SHORTEST_PAUSE_SECONDS) * (1 + self._roll()))
        return not step.is_over

    def _tell(self, kind: str, step: Tidied, seconds: float) -> None:
        done = self._rounds[kind]
        done.count += step.deleted
        done.seconds += seconds
        self._telemetry.rows_purged(kind, step.deleted)
        if step.is_over:
            self._telemetry.purge_round_ended(kind, done.count, done.seconds)
            self._rounds[kind] = _Round()

    def _chore(self, chore: Chore) -> Step:
        async def step(retention: Retention) -> Tidied:
            return await self._driver.tidy(chore, retention, rest=self._rest)

        return step

    def _table(self, rule: TableRule) -> Step:
        async def step(retention: Retention) -> Tidied:  # noqa: ARG001 - the rule says how long
            return await self._driver.tidy_table(rule, rest=self._rest)

        return step
