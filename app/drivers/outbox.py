"""What an outbox does: rows staged in a caller's transaction, and the verbs by which relays publish them.

Apart from `JobDriver`: the outbox may be in another database than the jobs, and what a store needs of a foreign
transaction is its own type parameter. Rows are claimed by state, never in the order of their ids: a transaction that
commits late leaves no gap behind. Release, end and quarantine are fenced on the claimant. Called by `jobs`, `outbox`,
`control`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from ..domain.audit import AuditEntry
from ..domain.job import JobId, NewJob
from ..domain.outbox import Claimed, OutboxId, OutboxView, Pass, Refusal, RelayId, UnpublishedRow

TxT_contra = TypeVar("TxT_contra", contravariant=True)


class Stager(Protocol[TxT_contra]):
    """Stages jobs in transactions of its callers."""

    async def stage(self, transaction: TxT_contra, jobs: Sequence[NewJob]) -> None:
        """Write rows on the caller's connection: its commit publishes them, its rollback leaves nothing.

        `delay` counts from here. Relays are woken after the commit where the transaction tells of it.
        `OUTBOX_NO_TX` where there is no transaction to write in, `TRANSACTION_FOREIGN` where it is on another kind of
        database, `SCHEMA_OUTDATED` where that has no outbox.
        """
        ...

    def stage_now(self, transaction: TxT_contra, jobs: Sequence[NewJob]) -> None:
        """Do the same from code that does not await, in a transaction of such code."""
        ...


@runtime_checkable
class StagedReader(Protocol):
    """Tells what becomes of staged rows; every outbox does."""

    async def find(self, staged_id: JobId, *, tenant: str | None = None) -> UnpublishedRow | None:
        """Give the row that waits here under this id, to be published or for an operator.

        None where none does, or another tenant's.
        """
        ...


class OutboxStore(Stager[TxT_contra], StagedReader, Protocol[TxT_contra]):
    """The staged rows of one database."""

    async def open(self) -> None:
        """Make the outbox usable; refuses with `SCHEMA_OUTDATED` where its table is missing."""
        ...

    async def close(self) -> None:
        """Give every connection back."""
        ...

    # --- relays

    async def publish(self, batch: int) -> Pass:
        """Publish up to `batch` staged rows into the jobs of the same database, in one transaction.

        Rows the store refuses for ever are quarantined by it, rows for full queues deferred; the others are published
        all the same.
        """
        ...

    async def claim(self, relay_id: RelayId, batch: int) -> Claimed:
        """Take up to `batch` staged rows for one `RELAY_LEASE`, to publish them elsewhere."""
        ...

    async def end(self, relay_id: RelayId, ids: Sequence[OutboxId]) -> int:
        """Let published rows go. Fenced: rows another relay has claimed meanwhile stay. Gives the number ended."""
        ...

    async def quarantine(self, relay_id: RelayId, refusals: Sequence[Refusal]) -> int:
        """Put rows aside with what refused them. Fenced. Gives the number put aside."""
        ...

    async def defer(self, relay_id: RelayId, ids: Sequence[OutboxId]) -> int:
        """Let rows rest whose queues are full; `recover` stages them again. Fenced. Gives the number deferred.

        Nothing was published of them, so it does not count as a claim of theirs that may have been.
        """
        ...

    async def release(self, relay_id: RelayId) -> int:
        """Stage again whatever this relay still has claimed. Gives the number of rows."""
        ...

    async def recover(self) -> int:
        """Stage again the rows of relays whose lease has passed; any relay, no leader. Gives the number of rows.

        Those that were deferred and have rested are staged again, too, and not counted.
        """
        ...

    # --- operators and readers

    async def view(self, limit: int = 50, *, tenant: str | None = None) -> OutboxView:
        """Give the outbox as it stands, with at most `limit` quarantined rows, of these only a tenant's if named."""
        ...

    async def replay(
        self,
        ids: Sequence[OutboxId] | None = None,
        *,
        may_double: bool = False,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> int:
        """Stage quarantined rows again, these or all, of one tenant if it is named; gives their number.

        Others are left alone.

        They are as old as they were. A relay finds them within ten seconds.

        A stale row may have been published: it is passed over unless it is named and `may_double` is said. It is
        published then, its staging taken to be now. The row of the audit is kept in the outbox's own database.
        """
        ...

    async def forwarded(self, staged_id: JobId) -> JobId | None:
        """Give the job that stands for a staged id in this database, None where none does."""
        ...


@runtime_checkable
class HasOutbox(Protocol):
    """A driver with an outbox beside its jobs."""

    @property
    def outbox(self) -> OutboxStore[Any]:
        """Give the outbox of the database that holds the jobs."""
        ...


def outbox_of(driver: object) -> OutboxStore[Any] | None:
    """Give the outbox beside a driver's jobs, None for a driver without one."""
    return driver.outbox if isinstance(driver, HasOutbox) else None
