"""What a store of bulk operations does: operations are made, worked off in batches, stopped and looked at.

Apart from `JobDriver`, as schedules are. Any number of executors may work at once and none leads: a batch takes the
operation's row, acts on its jobs and keeps their verdicts in one commit, so that no job is acted on twice, whoever
dies when. Called by workers and control.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from ..domain.audit import AuditEntry
from ..domain.bulk import BulkId, BulkItem, BulkStep, BulkVerdict, BulkView, NewBulk
from ..domain.job import JobId


class BulkStore(Protocol):
    """The bulk operations of one database."""

    # --- operators and readers

    async def count(self, bulk: NewBulk) -> int:
        """Count the jobs that an operation would act on now, exactly up to `MOST_SELECTED`, else one more."""
        ...

    async def make(self, bulk: NewBulk, *, audit: AuditEntry | None = None) -> BulkView:
        """Make an operation over the jobs that fit now; durable when this returns. Repeating the same id is safe.

        `COUNT_CHANGED` when another number than `expected_count` fits (details `expected`, `count`): nothing is made.
        `REQUEST_INVALID` when more than `MOST_SELECTED` fit. Ids are all taken: one without a job comes to a verdict.
        Every job that is acted on has a row in the audit of its own, kept with its verdict.
        """
        ...

    async def abort(
        self, bulk_id: BulkId, *, by: str, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> BulkView:
        """Stop an operation behind the batch at hand; what is done stays. One that has ended stays as it is.

        `NOT_FOUND` for one that is absent or another tenant's.
        """
        ...

    async def operations(
        self, *, limit: int, before: BulkId | None = None, tenant: str | None = None
    ) -> tuple[BulkView, ...]:
        """Give operations, newest first, of ids below `before`."""
        ...

    async def find(self, bulk_id: BulkId, *, tenant: str | None = None) -> BulkView | None:
        """Give one operation, None for one that is absent or another tenant's."""
        ...

    async def items(
        self, bulk_id: BulkId, *, verdicts: Sequence[BulkVerdict] = (), after: JobId | None = None, limit: int = 50
    ) -> tuple[BulkItem, ...]:
        """Give jobs of an operation by their ids, those of some verdicts alone if any are named."""
        ...

    # --- executors: any worker, no leader

    async def step(
        self, *, only: BulkId | None = None, after: BulkId | None = None, batch: int = 500
    ) -> BulkStep | None:
        """Act on the next batch of an operation, in one commit with the verdicts; None: there is nothing to do here.

        Of the running operations the next one after `after` in turn, or `only` that one. One that another executor
        has in hand is passed over. Jobs that somebody else holds or moves at the moment come again in a later round,
        and wait for nobody. A job whose state no longer fits is left alone and said to have changed. A job that
        calls others is cancelled with them in a commit of its own.
        """
        ...

    async def trim(self, batch: int = 10_000) -> int:
        """Delete what operations that ended longer than `BULK_KEPT` ago have kept of at most `batch` jobs; 0: none."""
        ...

    async def now(self) -> datetime:
        """Give the store's clock."""
        ...


@runtime_checkable
class HasBulk(Protocol):
    """A driver with bulk operations beside its jobs."""

    @property
    def bulk(self) -> BulkStore:
        """Give the bulk operations of the database that holds the jobs."""
        ...


def bulk_of(driver: object) -> BulkStore | None:
    """Give the bulk operations beside a driver's jobs, None for a driver without."""
    return driver.bulk if isinstance(driver, HasBulk) else None
