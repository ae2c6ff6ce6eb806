"""The outbox of the memory driver: the readable reference for what an outbox does.

Rows live beside the jobs under the store's lock; a transaction keeps
its own until it commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from ...domain.audit import UNCHANGED, AuditEntry
from ...domain.errors import OutlastError
from ...domain.job import Enqueued, JobId, NewJob
from ...domain.outbox import (
    MOST_COUNTED,
    RELAY_LEASE,
    Claimed,
    OutboxId,
    OutboxView,
    Pass,
    QuarantinedRow,
    Refusal,
    RelayId,
    StagedRow,
    UnpublishedRow,
    is_for_full_queue,
    is_refused_for_ever,
    refusal_of,
    summed,
    unfit,
)
from ..outbox import OutboxStore
from ..protocol import Wake
from .audit import keep
from .enqueue import enqueue_at
from .outbox_rows import MemoryTransaction, Row, opened, quarantined, settled
from .store import Store


class MemoryOutbox:
    """An `OutboxStore` beside the jobs of a memory driver. What each verb does is said by the protocol."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rows: dict[OutboxId, Row] = {}

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
        opened_one = opened(transaction)
        with self._store.statement() as now:
            opened_one.add([Row(job=settled(job, now), staged_at=now) for job in jobs])

    # --- relays

    async def publish(self, batch: int) -> Pass:
        """Publish staged rows into the jobs beside them."""
        answers: list[tuple[StagedRow, Enqueued]] = []
        refusals: list[Refusal] = []
        deferred = 0
        with self._store.statement() as now:
            taken = self._staged(batch)
            for row in taken:
                match self._published(row, now):
                    case Enqueued() as answer:
                        answers.append((row.shown(now), answer))
                    case Refusal() as refusal:
                        refusals.append(refusal)
                    case None:
                        deferred += 1
        published, deduped = summed(answers)
        return Pass(
            published=published,
            deduped=deduped,
            deferred=deferred,
            quarantined=tuple(refusals),
            is_full=len(taken) >= batch,
        )

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

    async def defer(self, relay_id: RelayId, ids: Sequence[OutboxId]) -> int:
        """Let rows rest."""
        with self._store.statement() as now:
            held = self._held(relay_id, ids)
            for row in held:
                row.claims -= 1
                row.defer(now)
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

    async def view(self, limit: int = 50, *, tenant: str | None = None) -> OutboxView:
        """Give the outbox as it stands."""
        with self._store.statement() as now:
            rows = list(self._rows.values())
            waiting = [row.staged_at for row in rows if row.refusal is None]
            items = sorted((item for row in rows if (item := quarantined(row)) is not None), key=_newest)
            oldest = min(waiting, default=None)
            return OutboxView(
                staged=min(MOST_COUNTED, sum(row.is_staged for row in rows)),
                claimed=min(MOST_COUNTED, sum(row.claimed_by is not None for row in rows)),
                quarantined=min(MOST_COUNTED, len(items)),
                deferred=min(MOST_COUNTED, sum(row.is_deferred for row in rows)),
                lag=now - (oldest or now),
                oldest_at=oldest,
                items=tuple([item for item in items if tenant in {None, item.tenant}][:limit]),
            )

    async def replay(
        self,
        ids: Sequence[OutboxId] | None = None,
        *,
        may_double: bool = False,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> int:
        """Stage quarantined rows again."""
        with self._store.statement(audit) as now:
            chosen = self._rows.keys() if ids is None else set(ids)
            takes_stale = may_double and ids is not None
            replayed = [
                row
                for row_id, row in self._rows.items()
                if row_id in chosen
                and row.refusal is not None
                and (takes_stale or row.refusal.code is not None)
                and tenant in {None, row.job.tenant}
            ]
            for row in replayed:
                if row.refusal is not None and row.refusal.code is None:
                    row.staged_at = now
                row.refusal = row.quarantined_at = None
                row.claims = 0
            if replayed:
                self._store.bell.add(Wake.STAGED)
            if audit is not None:
                outcome = audit.outcome if replayed else UNCHANGED
                keep(self._store, audit.came_to(outcome, count=len(replayed)), now)
            return len(replayed)

    async def forwarded(self, staged_id: JobId) -> JobId | None:
        """Give the job that stands for a staged id."""
        with self._store.statement():
            source = self._store.sources.get(staged_id)
            return None if source is None else source.job_id

    async def find(self, staged_id: JobId, *, tenant: str | None = None) -> UnpublishedRow | None:
        """Give the row that waits here under this id."""
        with self._store.statement():
            row = self._rows.get(OutboxId(staged_id))
            if row is None or tenant not in {None, row.job.tenant}:
                return None
            return UnpublishedRow(tenant=row.job.tenant, refusal=row.refusal)

    def _commit(self, rows: Sequence[Row]) -> None:
        with self._store.statement():
            self._rows.update((OutboxId(row.job.id), row) for row in rows)
            if rows:
                self._store.bell.add(Wake.STAGED)

    def _published(self, row: Row, now: datetime) -> Enqueued | Refusal | None:
        """Make a job of a row, put it aside, or let it rest until its queue is no longer full."""
        shown = row.shown(now)
        refusal = unfit(shown)
        if refusal is None:
            try:
                answer = enqueue_at(self._store, now, shown.job)
            except OutlastError as error:
                if is_for_full_queue(error):
                    row.defer(now)
                    return None
                if not is_refused_for_ever(error):
                    raise
                refusal = refusal_of(shown, error)
            else:
                del self._rows[shown.id]
                return answer
        row.put_aside(refusal, now)
        return refusal

    def _staged(self, batch: int) -> list[Row]:
        staged = (row for row in self._rows.values() if row.is_staged)
        return sorted(staged, key=lambda row: row.staged_at)[:batch]

    def _held(self, relay_id: RelayId, ids: Sequence[OutboxId]) -> list[Row]:
        found = (self._rows.get(row_id) for row_id in ids)
        return [row for row in found if row is not None and row.claimed_by == relay_id]

    def _stage_again(self, rows: Iterator[Row]) -> int:
        count = 0
        for row in rows:
            count += row.claimed_by is not None
            row.claimed_by = row.lease_until = None
        return count


def _newest(item: QuarantinedRow) -> tuple[float, int]:
    return -item.quarantined_at.timestamp(), -item.id.int


_: type[OutboxStore[MemoryTransaction]] = MemoryOutbox
