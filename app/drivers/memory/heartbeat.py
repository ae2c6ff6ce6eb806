"""The heartbeat's verbs: renew a lease and learn what was revoked, or let it end over abandoned claims.

Used from the heartbeat's own thread; the store's lock is what the two threads share.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

from ...domain.drain import LAST_PHASE, DrainReport, DrainShown
from ...domain.job import ClaimToken, WorkerId
from ...domain.snapshot import Renewal, Revocation
from ..protocol import HeartbeatStore
from .drains import report_drain
from .settle import superseded_by
from .store import Store


class MemoryHeartbeat:
    """A `HeartbeatStore` over the shared rows."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def renew(self, worker_id: WorkerId, held: Sequence[ClaimToken]) -> Renewal:
        """Extend an unexpired lease by its own length; see `HeartbeatStore.renew`."""
        with self._store.statement() as now:
            worker = self._store.workers.get(worker_id)
            is_held = worker is not None and worker.is_alive(now)
            if worker is not None and is_held:
                worker.renewed_at, worker.lease_until = now, now + worker.lease
            asked_by = None if worker is None else worker.drain_asked_by
            return Renewal(is_held=is_held, revoked=_revoked(self._store, held), drain_asked_by=asked_by)

    async def abandon(self, worker_id: WorkerId, tokens: Sequence[ClaimToken], lease: timedelta) -> int:
        """Mark claims as abandoned and let the lease end; see `HeartbeatStore.abandon`."""
        with self._store.statement() as now:
            worker = self._store.workers.get(worker_id)
            if worker is None or not worker.is_alive(now):
                return 0
            worker.lease_until = now + lease
            worker.drain = replace(worker.drain or DrainShown(phase=LAST_PHASE), phase=LAST_PHASE)
            return sum(_mark(self._store, token) for token in tokens if token.worker_id == worker_id)

    async def report_drain(self, report: DrainReport) -> None:
        """Keep what became of a drained worker's runs; see `HeartbeatStore.report_drain`."""
        report_drain(self._store, report)


@asynccontextmanager
async def open_heartbeat(store: Store) -> AsyncIterator[HeartbeatStore]:
    """Open the heartbeat's way to the store; it needs no connection here."""
    yield MemoryHeartbeat(store)


def _revoked(store: Store, held: Sequence[ClaimToken]) -> tuple[Revocation, ...]:
    return tuple(
        Revocation(token=token, by=superseded_by(store, token)) for token in held if store.claim_named(token) is None
    )


def _mark(store: Store, token: ClaimToken) -> bool:
    running = store.claim_named(token)
    if running is not None:
        store.tokens[token.job_id] = replace(running, is_abandoned=True)
    return running is not None
