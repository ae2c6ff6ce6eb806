"""The verbs of housekeeping, a part of the driver: each is a function in the module of its name."""

from __future__ import annotations

from datetime import timedelta

from ...domain.job import JobId
from ...domain.retention import Chore, EndedRule, Purged, Retention, TableRule, Tidied
from ..purging import BATCH, NO_REST, PurgeStore, Purging
from . import purge, purge_chores, purge_tables
from .database import Database


class PurgeVerbs(Purging):
    """A store in PostgreSQL that forgets. What each verb promises, the protocol says."""

    _db: Database

    async def tidy(
        self,
        chore: Chore,
        retention: Retention,
        *,
        batch: int = BATCH,
        rest: timedelta = NO_REST,
        now: bool = False,
    ) -> Tidied:
        """Take one step of the round over a kind of rows."""
        if chore is Chore.JOBS:
            return await purge.tidy_ended(self._db, retention.ended, batch=batch, rest=rest, now=now)
        return await purge_chores.tidy(self._db, chore, retention, batch=batch, rest=rest, now=now)

    async def tidy_table(
        self, rule: TableRule, *, blocks: int = 128, rest: timedelta = NO_REST, now: bool = False
    ) -> Tidied:
        """Take one step of the round over a table of the application's."""
        return await purge_tables.tidy_table(self._db, rule, blocks=blocks, rest=rest, now=now)

    async def purge_ended(
        self, rule: EndedRule, *, after: JobId | None = None, batch: int = BATCH, dry: bool = False
    ) -> Purged:
        """Take one step over ended jobs."""
        return await purge.purge_ended(self._db, rule, after=after, batch=batch, dry=dry)

    async def count_over(self, chore: Chore, retention: Retention) -> int:
        """Count the rows of a kind that are over."""
        return await purge_chores.count_over(self._db, chore, retention)

    async def count_table(self, rule: TableRule) -> int:
        """Count the rows of a table that are over."""
        return await purge_tables.count_table(self._db, rule)


_: type[PurgeStore] = PurgeVerbs
