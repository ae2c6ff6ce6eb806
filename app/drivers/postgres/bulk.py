"""Bulk operations in PostgreSQL: one class that gives every verb its database. Owns the composition alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ...domain.audit import AuditEntry
from ...domain.bulk import BulkId, BulkItem, BulkStep, BulkVerdict, BulkView, NewBulk
from ...domain.job import JobId
from ..bulk import BulkStore
from . import bulk_make, bulk_step, bulk_view
from .database import Database
from .look import look

# Whoever is about to act needs the whole count: it has the time of a request, and its turn among the reads.
_COUNT_SECONDS = 8.0


class PostgresBulk:
    """A `BulkStore` in PostgreSQL. What each verb does is said by the protocol."""

    def __init__(self, db: Database) -> None:
        self._db = db

    # --- operators and readers

    async def count(self, bulk: NewBulk) -> int:
        """Count the jobs that fit."""
        return await look(self._db, lambda db: bulk_make.count(db, bulk), seconds=_COUNT_SECONDS)

    async def make(self, bulk: NewBulk, *, audit: AuditEntry | None = None) -> BulkView:
        """Make an operation."""
        return await bulk_make.make(self._db, bulk, audit)

    async def abort(
        self, bulk_id: BulkId, *, by: str, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> BulkView:
        """Stop an operation."""
        return await bulk_make.abort(self._db, bulk_id, by=by, tenant=tenant, audit=audit)

    async def operations(
        self, *, limit: int, before: BulkId | None = None, tenant: str | None = None
    ) -> tuple[BulkView, ...]:
        """Give operations, newest first."""
        return await look(self._db, lambda db: bulk_view.operations(db, limit=limit, before=before, tenant=tenant))

    async def find(self, bulk_id: BulkId, *, tenant: str | None = None) -> BulkView | None:
        """Give one operation."""
        return await bulk_view.find(self._db, bulk_id, tenant=tenant)

    async def items(
        self, bulk_id: BulkId, *, verdicts: Sequence[BulkVerdict] = (), after: JobId | None = None, limit: int = 50
    ) -> tuple[BulkItem, ...]:
        """Give jobs of an operation."""
        return await look(
            self._db, lambda db: bulk_view.items(db, bulk_id, verdicts=verdicts, after=after, limit=limit)
        )

    # --- executors

    async def step(
        self, *, only: BulkId | None = None, after: BulkId | None = None, batch: int = 500
    ) -> BulkStep | None:
        """Act on the next batch."""
        return await bulk_step.step(self._db, only=only, after=after, batch=batch)

    async def trim(self, batch: int = 10_000) -> int:
        """Delete what old operations have kept."""
        return await bulk_make.trim(self._db, batch)

    async def now(self) -> datetime:
        """Give the store's clock."""
        async with self._db.raw() as conn:
            now: datetime = await conn.fetchval(self._db.in_schema("select outlast.clock()"))
        return now


_: type[BulkStore] = PostgresBulk
