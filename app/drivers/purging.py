"""The vocabulary of housekeeping: what is over is deleted, in steps that any worker may take at any time.

A part of the job store's protocol. No step waits for what claims, settles or retries hold, and none is larger than its
batch. What workers do by themselves (`tidy`, `tidy_table`) goes in rounds whose place the store keeps: of any number of
workers one takes a step at a time, and whoever comes after one that was killed goes on behind its last step.
Implemented by every driver.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from ..domain.job import JobId
from ..domain.retention import Chore, EndedRule, Purged, Retention, TableRule, Tidied
from ..domain.state import State

BATCH = 1000
NO_REST = timedelta()
# A dry run counts no further than this in one call.
MOST_COUNTED = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeQuery:
    """Terminal jobs of one state that finished more than `older_than` ago; at most `batch` per call."""

    state: State
    older_than: timedelta
    batch: int = BATCH


class PurgeStore(Protocol):
    """A store that forgets."""

    # --- by any worker, no leader

    async def tidy(
        self,
        chore: Chore,
        retention: Retention,
        *,
        batch: int = BATCH,
        rest: timedelta = NO_REST,
        now: bool = False,
    ) -> Tidied:
        """Take one step of the round over a kind of rows, and keep its place in the same commit.

        Looks at up to `batch` rows and deletes those that are over. After a round the kind rests for `rest`, or for
        ten times as long as the round took if that is longer; not at all without a `rest`. Idle: it rests (unless
        `now` is asked for), or another process is at it.
        Ended jobs go with their ledger, their run and their limits; a child whose live parent waits for it stays, and
        so do keys and sources within their windows. Events stay while a job that was enqueued before them is not done.
        """
        ...

    async def tidy_table(
        self, rule: TableRule, *, blocks: int = 128, rest: timedelta = NO_REST, now: bool = False
    ) -> Tidied:
        """Do the same for a table of the application's, `blocks` pages a step, in the database of the jobs.

        `SETTINGS_INVALID` where the table or the column is not there, is of the wrong kind, or is Outlast's own;
        `NOT_IMPLEMENTED` where the store is no database.
        """
        ...

    # --- operators

    async def purge_ended(
        self, rule: EndedRule, *, after: JobId | None = None, batch: int = BATCH, dry: bool = False
    ) -> Purged:
        """Take one step over ended jobs in the order of their ids, from the oldest or from behind `after`.

        Looks at up to `batch` of them; `dry` only counts those that are over. Repeating it is safe.
        """
        ...

    async def count_over(self, chore: Chore, retention: Retention) -> int:
        """Count the rows of a kind that are over, up to `MOST_COUNTED`; changes nothing. Not for ended jobs."""
        ...

    async def count_table(self, rule: TableRule) -> int:
        """Count the rows of a table that are over; changes nothing. Refuses as `tidy_table` does."""
        ...

    async def purge(self, query: PurgeQuery) -> int:
        """Delete one batch of ended jobs of one state, and of keys and sources whose windows are over.

        Gives the number of jobs deleted; less than the batch means that nothing older is left.
        """
        ...


class Purging:
    """`purge`, in terms of the other verbs: as many steps as a batch takes."""

    async def purge(self: PurgeStore, query: PurgeQuery) -> int:
        """Delete one batch of ended jobs of one state."""
        rule = EndedRule.older_than(query.older_than, states={query.state})
        deleted = 0
        after: JobId | None = None
        while deleted < query.batch:
            step = await self.purge_ended(rule, after=after, batch=query.batch - deleted)
            deleted += step.deleted
            if step.next_after is None:
                break
            after = step.next_after
        for chore in (Chore.KEYS, Chore.SOURCES):
            await self.tidy(chore, Retention(), batch=query.batch, now=True)
        return deleted
