"""Purging on demand: ended jobs by age, or everything whose retention is over, counted first or deleted.

Goes in the same small steps as workers do by themselves and may be stopped between any two; repeating it goes on with
what is left. Called by the command line and the HTTP routes.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

from ..domain.audit import Acting, Action, Target
from ..domain.job import JobId
from ..domain.retention import Chore, EndedRule, Retention, TableRule
from ..domain.snapshot import DeadGroup
from ..domain.state import State
from ..drivers.protocol import JobDriver
from ..jobs.describe import published_retentions
from .acting import entry_of
from .outbox import ASKED

# One request deletes for so long at most, and says where to go on.
_REQUEST_SECONDS = 5.0
_BATCH = 1000


class PurgeStep(NamedTuple):
    """One step of a purge on demand: what kind of rows, how many were looked at where that is known, how many go."""

    kind: str
    looked: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadPurge:
    """What one request did about dead letters, and where the next goes on; None: nothing that old is left."""

    purged: int
    next_after: JobId | None


class PurgeControl:
    """The verbs of purging over a driver."""

    def __init__(
        self,
        driver: JobDriver,
        *,
        retention: Retention | None = None,
        tables: Sequence[TableRule] = (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._retention = retention or Retention()
        self._tables = tables
        self._monotonic = monotonic

    async def asked(self, by: Acting, rule: EndedRule | None) -> None:
        """Keep the row of the audit of a purge that is about to delete; without a rule, of what retention is over for.

        It comes before the first step, as none of many is the purge: the outcome is that it was asked for.
        """
        details: dict[str, object] = {}
        if rule is not None:
            age = round(rule.shortest / timedelta(milliseconds=1))
            details = {"older_than_ms": age, "states": sorted(state.value for state in rule.states), "name": rule.name}
        tenant = None if rule is None else rule.tenant
        entry = entry_of(by, Action.PURGE, Target.STORE, None, tenant=tenant, details=details)
        if entry is not None:
            await self._driver.keep_entry(entry.came_to(ASKED))

    async def ended(self, rule: EndedRule, *, dry: bool = False) -> AsyncIterator[PurgeStep]:
        """Delete, or count, the ended jobs that a rule names, step by step."""
        after: JobId | None = None
        while True:
            step = await self._driver.purge_ended(rule, after=after, dry=dry)
            yield PurgeStep(Chore.JOBS.value, step.looked, step.deleted)
            if step.next_after is None:
                return
            after = step.next_after

    async def over(self, *, dry: bool = False) -> AsyncIterator[PurgeStep]:
        """Delete, or count, everything whose retention is over, the application's tables among it, kind by kind."""
        retention = replace(self._retention, by_name=published_retentions(await self._driver.job_types()))
        if dry:
            async for counted in self._count(retention):
                yield counted
            return
        for chore in Chore:
            while True:
                step = await self._driver.tidy(chore, retention, now=True)
                yield PurgeStep(chore.value, 0, step.deleted)
                if step.is_over:
                    break
        for table in self._tables:
            while True:
                step = await self._driver.tidy_table(table, now=True)
                yield PurgeStep(f"table {table.table}", 0, step.deleted)
                if step.is_over:
                    break

    async def _count(self, retention: Retention) -> AsyncIterator[PurgeStep]:
        async for step in self.ended(retention.ended, dry=True):
            yield step
        for chore in Chore:
            if chore is not Chore.JOBS:
                yield PurgeStep(chore.value, 0, await self._driver.count_over(chore, retention))
        for table in self._tables:
            yield PurgeStep(f"table {table.table}", 0, await self._driver.count_table(table))

    async def dead_letters(self, *, tenant: str | None) -> tuple[DeadGroup, ...]:
        """Give the dead letters in groups."""
        return await self._driver.dead_letters(tenant=tenant)

    async def dead(
        self,
        older_than: timedelta,
        *,
        name: str | None = None,
        tenant: str | None = None,
        after: JobId | None = None,
        dry: bool = False,
        by: Acting | None = None,
    ) -> DeadPurge:
        """Delete, or count, dead letters older than an age, for a few seconds at most."""
        rule = EndedRule.older_than(older_than, states={State.DEAD}, name=name, tenant=tenant)
        if by is not None and not dry and after is None:
            await self.asked(by, rule)
        purged, until = 0, self._monotonic() + _REQUEST_SECONDS
        while True:
            step = await self._driver.purge_ended(rule, after=after, batch=_BATCH, dry=dry)
            purged, after = purged + step.deleted, step.next_after
            if after is None or self._monotonic() >= until:
                return DeadPurge(purged=purged, next_after=after)
