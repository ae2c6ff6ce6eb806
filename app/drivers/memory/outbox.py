"""The outbox of the memory driver, and the transaction that stands in for a caller's database.

The readable reference for what an outbox does. Rows live beside the jobs under the store's lock; a transaction keeps
its own until it commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Self

from ...domain.errors import OutboxNoTx, OutlastError
from ...domain.job import Enqueued, JobId, NewJob
from ...domain.outbox import (
    MOST_COUNTED,
    RELAY_LEASE,
    SOURCE_KEPT,
    Claimed,
    OutboxId,
    OutboxView,
    Pass,
    QuarantinedRow,
    Refusal,
    RelayId,
    StagedRow,
    UnpublishedRow,
    is_refused_for_ever,
    refusal_of,
    summed,
    unfit,
)
from ..outbox import OutboxStore
from ..protocol import Wake
from .enqueue import enqueue_at
from .store import Store


@dataclass(slots=True, kw_only=True)
class _Row:
    """A row: staged without a claimant, claimed with one, quarantined with a refusal. `claims` counts its claims."""

    job: NewJob
    staged_at: datetime
    claims: int = 0
    claimed_by: RelayId | None = None
    lease_until: datetime | None = None
    refusal: Refusal | None = None
    quarantined_at: datetime | None = None

    @property
    def is_staged(self) -> bool:
        return self.claimed_by is None and self.refusal is None

    def shown(self, now: datetime) -> StagedRow:
        return StagedRow(
            job=self.job,
            staged_at=self.staged_at,
            is_stale=self.claims > 0 and self.staged_at < now - SOURCE_KEPT,
        )

    def put_aside(self, refusal: Refusal, now: datetime) -> None:
        self.claimed_by = self.lease_until = None
        self.refusal, self.quarantined_at = refusal, now


class MemoryTransaction:
    """A transaction of a caller: `with outbox.transaction() as tx:` commits at its end, or rolls back on an error."""

    def __init__(self, commit: Callable[[Sequence[_Row]], None]) -> None:
        self._commit = commit
        self._rows: list[_Row] = []
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

    def add(self, rows: Sequence[_Row]) -> None:
        """Keep rows until the end."""
        self._rows.extend(rows)


class MemoryOutbox:
    """An `OutboxStore` beside the jobs of a memory driver. What each verb does is said by the protocol."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: dict[OutboxId, _Row] = {}

    def transaction(self) -> MemoryTransaction:
        """Open a transaction to stage in."""
        return MemoryTransaction(self._commit)

    async def open(self) -> None:
        """Take calls as long as the driver does."""

    async def close(self) -> None:
        """Leave closing to the driver."""

    async def stage(self, transaction: MemoryTransaction, jobs: Sequence[NewJob]) -> None:
        """Stage rows in a transaction of `transaction()`."""
        self.stage_now(transaction, jobs)

    def stage_now(self, transaction: MemoryTransaction, jobs: Sequence[NewJob]) -> None:
        """Do the same without awaiting.

        Raises:
            OutboxNoTx: it is no open transaction.
        """
        opened = _opened(transaction)
        with self._store.statement() as now:
            opened.add([_Row(job=_settled(job, now), staged_at=now) for job in jobs])

    # --- relays

    async def publish(self, batch: int) -> Pass:
        """Publish staged rows into the jobs beside them."""
        answers: list[tuple[StagedRow, Enqueued]] = []
        refusals: list[Refusal] = []
        with self._store.statement() as now:
            taken = self._staged(batch)
            for row in taken:
                shown = row.shown(now)
                try:
                    refusal = unfit(shown)
                    if refusal is None:
                        answers.append((shown, enqueue_at(self._store, now, row.job)))
                        del self._rows[shown.id]
                except OutlastError as error:
                    if not is_refused_for_ever(error):
                        raise
                    refusal = refusal_of(shown, error)
                if refusal is not None:
                    row.put_aside(refusal, now)
                    refusals.append(refusal)
        published, deduped = summed(answers)
        return Pass(published=published, deduped=deduped, quarantined=tuple(refusals), is_full=len(taken) >= batch)

    async def claim(self, relay_id: RelayId, batch: int) -> Claimed:
        """Take staged rows for a lease."""
        with self._store.statement() as now:
            taken = self._staged(batch)
            shown = tuple(row.shown(now) for row in taken)
            for row in taken:
                row.claimed_by, row.lease_until, row.claims = relay_id, now + RELAY_LEASE, row.claims + 1
            return Claimed(rows=shown, is_full=len(taken) >= batch)

    async def end(self, relay_id: RelayId, ids: Sequence[OutboxId]) -> int:
        """Let published rows go."""
        with self._store.statement():
            held = self._held(relay_id, ids)
            for row in held:
                del self._rows[OutboxId(row.job.id)]
            return len(held)

    async def quarantine(self, relay_id: RelayId, refusals: Sequence[Refusal]) -> int:
        """Put rows aside."""
        with self._store.statement() as now:
            held = self._held(relay_id, [refusal.id for refusal in refusals])
            by_id = {refusal.id: refusal for refusal in refusals}
            for row in held:
                row.put_aside(by_id[OutboxId(row.job.id)], now)
            return len(held)

    async def release(self, relay_id: RelayId) -> int:
        """Stage again what this relay has claimed."""
        with self._store.statement():
            return self._stage_again(row for row in self._rows.values() if row.claimed_by == relay_id)

    async def recover(self) -> int:
        """Stage again what a lease that has passed was on."""
        with self._store.statement() as now:
            return self._stage_again(
                row for row in self._rows.values() if row.lease_until is not None and row.lease_until <= now
            )

    # --- operators and readers

    async def view(self, limit: int = 50) -> OutboxView:
        """Give the outbox as it stands."""
        with self._store.statement() as now:
            rows = list(self._rows.values())
            waiting = [row.staged_at for row in rows if row.refusal is None]
            items = sorted((item for row in rows if (item := _quarantined(row)) is not None), key=_newest)
            oldest = min(waiting, default=None)
            return OutboxView(
                staged=min(MOST_COUNTED, sum(row.is_staged for row in rows)),
                claimed=min(MOST_COUNTED, sum(row.claimed_by is not None for row in rows)),
                quarantined=min(MOST_COUNTED, len(items)),
                lag=now - (oldest or now),
                oldest_at=oldest,
                items=tuple(items[:limit]),
            )

    async def replay(self, ids: Sequence[OutboxId] | None = None, *, may_double: bool = False) -> int:
        """Stage quarantined rows again."""
        with self._store.statement() as now:
            chosen = self._rows.keys() if ids is None else set(ids)
            takes_stale = may_double and ids is not None
            replayed = [
                row
                for row_id, row in self._rows.items()
                if row_id in chosen and row.refusal is not None and (takes_stale or row.refusal.code is not None)
            ]
            for row in replayed:
                row.refusal = row.quarantined_at = None
                row.claims, row.staged_at = 0, now
            if replayed:
                self._store.bell.add(Wake.STAGED)
            return len(replayed)

    async def forwarded(self, staged_id: JobId) -> JobId | None:
        """Give the job that stands for a staged id."""
        with self._store.statement():
            source = self._store.sources.get(staged_id)
            return None if source is None else source.job_id

    async def find(self, staged_id: JobId) -> UnpublishedRow | None:
        """Give the row that waits here under this id."""
        with self._store.statement():
            row = self._rows.get(OutboxId(staged_id))
            return None if row is None else UnpublishedRow(tenant=row.job.tenant, refusal=row.refusal)

    def _commit(self, rows: Sequence[_Row]) -> None:
        with self._store.statement():
            self._rows.update((OutboxId(row.job.id), row) for row in rows)
            if rows:
                self._store.bell.add(Wake.STAGED)

    def _staged(self, batch: int) -> list[_Row]:
        staged = (row for row in self._rows.values() if row.is_staged)
        return sorted(staged, key=lambda row: row.staged_at)[:batch]

    def _held(self, relay_id: RelayId, ids: Sequence[OutboxId]) -> list[_Row]:
        found = (self._rows.get(row_id) for row_id in ids)
        return [row for row in found if row is not None and row.claimed_by == relay_id]

    def _stage_again(self, rows: Iterator[_Row]) -> int:
        count = 0
        for row in rows:
            row.claimed_by = row.lease_until = None
            count += 1
        return count


def _opened(transaction: object) -> MemoryTransaction:
    if isinstance(transaction, MemoryTransaction) and transaction.is_open:
        return transaction
    raise OutboxNoTx(
        f"a {type(transaction).__name__} is no open transaction of the memory outbox",
        fix="stage inside `with driver.outbox.transaction() as session:`",
    )


def _settled(job: NewJob, now: datetime) -> NewJob:
    """Give a job as its row keeps it: the delay counts from now, and the row is the job's source."""
    run_at = job.run_at if job.delay is None else now + job.delay
    return replace(job, run_at=run_at, delay=None, source_id=job.id, on_conflict="return")


def _quarantined(row: _Row) -> QuarantinedRow | None:
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


def _newest(item: QuarantinedRow) -> tuple[float, int]:
    return -item.quarantined_at.timestamp(), -item.id.int


_: type[OutboxStore[MemoryTransaction]] = MemoryOutbox
