"""The rows of the memory driver's outbox, and the transaction that stands in for a caller's database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Self

from ...domain.errors import OutboxNoTx
from ...domain.job import NewJob
from ...domain.outbox import SOURCE_KEPT, QuarantinedRow, Refusal, RelayId, StagedRow, deferral_of


@dataclass(slots=True, kw_only=True)
class Row:
    """A row: staged without a claimant, claimed with one, quarantined with a refusal. `claims` counts its claims.

    One that is deferred has a lease that nobody holds.
    """

    job: NewJob
    staged_at: datetime
    claims: int = 0
    claimed_by: RelayId | None = None
    lease_until: datetime | None = None
    refusal: Refusal | None = None
    quarantined_at: datetime | None = None

    @property
    def is_staged(self) -> bool:
        """Say whether relays find it."""
        return self.lease_until is None and self.refusal is None

    @property
    def is_deferred(self) -> bool:
        """Say whether it rests because its queue was full."""
        return self.lease_until is not None and self.claimed_by is None

    def shown(self, now: datetime) -> StagedRow:
        """Give the row as a relay gets it."""
        return StagedRow(
            job=replace(self.job, staged_at=self.staged_at),
            staged_at=self.staged_at,
            is_stale=self.claims > 0 and self.staged_at < now - SOURCE_KEPT,
        )

    def defer(self, now: datetime) -> None:
        """Let it rest."""
        self.claimed_by, self.lease_until = None, now + deferral_of(now - self.staged_at)

    def put_aside(self, refusal: Refusal, now: datetime) -> None:
        """Quarantine it."""
        self.claimed_by = self.lease_until = None
        self.refusal, self.quarantined_at = refusal, now


class MemoryTransaction:
    """A transaction of a caller: `with outbox.transaction() as tx:` commits at its end, or rolls back on an error."""

    def __init__(self, commit: Callable[[Sequence[Row]], None]) -> None:
        self._commit = commit
        self._rows: list[Row] = []
        self.is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        if self.is_open:
            (self.commit if kind is None else self.rollback)()

    def commit(self) -> None:
        """Let what was staged be seen."""
        self.is_open = False
        self._commit(self._rows)

    def rollback(self) -> None:
        """Let what was staged never have been."""
        self.is_open = False
        self._rows.clear()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Open a part of the transaction that an error undoes by itself."""
        kept = len(self._rows)
        try:
            yield
        except BaseException:
            del self._rows[kept:]
            raise

    def add(self, rows: Sequence[Row]) -> None:
        """Keep rows until the end."""
        self._rows.extend(rows)


def opened(transaction: object) -> MemoryTransaction:
    """Give a transaction that can be staged in.

    Raises:
        OutboxNoTx: it is none.
    """
    if isinstance(transaction, MemoryTransaction) and transaction.is_open:
        return transaction
    raise OutboxNoTx(
        f"a {type(transaction).__name__} is no open transaction of the memory outbox",
        fix="stage inside `with driver.outbox.transaction() as session:`",
    )


def settled(job: NewJob, now: datetime) -> NewJob:
    """Give a job as its row keeps it: the delay counts from now, and the row is the job's source."""
    run_at = job.run_at if job.delay is None else now + job.delay
    return replace(job, run_at=run_at, delay=None, source_id=job.id, on_conflict="return")


def quarantined(row: Row) -> QuarantinedRow | None:
    """Give a row as an operator sees it, None unless it is quarantined."""
    if row.refusal is None or row.quarantined_at is None:
        return None
    return QuarantinedRow(
        id=row.refusal.id,
        name=row.job.name,
        queue=row.job.queue,
        tenant=row.job.tenant,
        staged_at=row.staged_at,
        quarantined_at=row.quarantined_at,
        code=row.refusal.code,
        message=row.refusal.message,
    )
