"""The worker processes behind a store: which live, what they run, whether they drain.

Called by the HTTP routes, the admin listener and the command line.
"""

from __future__ import annotations

from collections import Counter
from typing import assert_never

from ..domain.drain import DrainAsk
from ..domain.errors import LeaseLost, NotFound
from ..domain.job import WorkerId
from ..domain.snapshot import WorkerView
from ..drivers.protocol import JobDriver
from ..lifecycle.status import DrainPhase
from .render import Document
from .represent import worker_document

# Ids are 32-bit integers of the store's.
_LARGEST_ID = 2**31 - 1


class FleetControl:
    """Reads the workers, and asks them to leave."""

    def __init__(self, driver: JobDriver) -> None:
        self._driver = driver

    async def workers(self) -> tuple[WorkerView, ...]:
        """Give live workers and those that left in the last hour, newest first."""
        return await self._driver.workers()

    async def drain(self, worker_id: str, *, by: str) -> WorkerView:
        """Ask a worker to drain, which it does at its next renewal; gives it as it stands. Idempotent.

        Raises:
            NotFound: there is no such worker.
            LeaseLost: it has left already.
        """
        wanted = _id_of(worker_id)
        found = DrainAsk.UNKNOWN if wanted is None else await self._driver.ask_drain(wanted, by=by)
        match found:
            case DrainAsk.UNKNOWN:
                raise NotFound(f"there is no worker {worker_id[:40]!r}", fix="give an id that GET /v1/workers lists")
            case DrainAsk.GONE:
                raise LeaseLost(f"worker {worker_id} has left", fix="nothing is left to do: it holds no jobs any more")
            case DrainAsk.ASKED:
                return await self._view(wanted)
            case _:
                assert_never(found)

    async def _view(self, worker_id: WorkerId | None) -> WorkerView:
        return next(worker for worker in await self._driver.workers() if worker.id == worker_id)

    async def draining(self) -> Document:
        """Give the workers with their drains, as they show them in the store."""
        workers = await self._driver.workers()
        live = [worker for worker in workers if worker.closed_at is None and worker.lost_at is None]
        phases = Counter(worker.drain_phase for worker in live)
        return {
            "scope": "fleet",
            "live": len(live),
            "draining": len(live) - phases[None],
            "phases": {phase.value: phases[phase.value] for phase in DrainPhase},
            "workers": [worker_document(worker) for worker in workers],
        }


def _id_of(text: str) -> WorkerId | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(_LARGEST_ID))
    return WorkerId(int(text)) if is_number and int(text) <= _LARGEST_ID else None
