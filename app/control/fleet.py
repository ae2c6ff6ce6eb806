"""The worker processes behind a store: which live, what they run, whether they drain.

Called by the HTTP routes, the admin listener and the command line.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, Literal, assert_never

from ..domain.audit import Acting, Action, Target
from ..domain.drain import DrainAsk
from ..domain.errors import LeaseLost, NotFound
from ..domain.job import WorkerId
from ..domain.snapshot import WorkerView
from ..drivers.protocol import JobDriver
from ..lifecycle.status import DrainPhase
from .acting import entry_of
from .render import Document
from .represent import worker_document

# Ids are 32-bit integers of the store's, from 1; each has one spelling.
LARGEST_WORKER_ID = 2**31 - 1
_ID = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)

# What to do when the store is away: a worker is asked through it, but does not need it to leave.
ASK_ITSELF: Final = (
    "ask the worker itself, which needs no store: `outlast drain` on its machine, POST /v1/drain on its own admin port,"
    " or SIGTERM"
)


class FleetControl:
    """Reads the workers, and asks them to leave."""

    def __init__(self, driver: JobDriver) -> None:
        self._driver = driver

    async def workers(self) -> tuple[WorkerView, ...]:
        """Give live workers and those that left in the last hour, newest first."""
        return await self._driver.workers()

    async def drain(self, worker_id: str, *, by: str, reason: str | None = None) -> WorkerView:
        """Ask a worker to drain, which it does at its next renewal; gives it as it stands. Idempotent.

        Raises:
            NotFound: there is no such worker.
            LeaseLost: it has left already, or was lost.
        """
        match await self.ask(worker_id, by=by, reason=reason):
            case DrainAsk.LEFT:
                raise LeaseLost(f"worker {worker_id} has left", fix="nothing is left to do: it holds no jobs any more")
            case DrainAsk.ASKED:
                view = await self.find(worker_id)
                assert view is not None, "it lived a moment ago, and is listed for an hour"  # noqa: S101 - see above
                return view
            case never:
                assert_never(never)

    async def ask(
        self, worker_id: str, *, by: str, reason: str | None = None
    ) -> Literal[DrainAsk.ASKED, DrainAsk.LEFT]:
        """Ask a worker to drain, for a caller to whom one that has left is as good. Idempotent; raises as `drain`."""
        wanted = _id_of(worker_id)
        audit = entry_of(Acting(actor=by, reason=reason), Action.WORKER_DRAIN, Target.WORKER, worker_id)
        found = DrainAsk.UNKNOWN if wanted is None else await self._driver.ask_drain(wanted, by=by, audit=audit)
        match found:
            case DrainAsk.UNKNOWN:
                raise unknown(worker_id)
            case DrainAsk.LOST:
                raise lost(worker_id)
            case DrainAsk.LEFT | DrainAsk.ASKED:
                return found
            case _:
                assert_never(found)

    async def find(self, worker_id: str) -> WorkerView | None:
        """Give a worker that lives or left in the last hour, else None."""
        wanted = _id_of(worker_id)
        return next((worker for worker in await self._driver.workers() if worker.id == wanted), None)

    async def worker(self, worker_id: str) -> WorkerView:
        """Give a worker that lives or left in the last hour. Raises `NOT_FOUND`."""
        found = await self.find(worker_id)
        if found is None:
            raise unknown(worker_id)
        return found

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


def unknown(worker_id: str) -> NotFound:
    """Give the error of a worker that is not listed."""
    return NotFound(f"there is no worker {worker_id[:40]!a}", fix="give an id that GET /v1/workers lists")


def lost(worker_id: str) -> LeaseLost:
    """Give the error of a worker whose lease has passed: it cannot be asked, and nobody knows that it has left."""
    return LeaseLost(
        f"worker {worker_id} was lost: its lease passed without a word",
        fix="its jobs are taken over; if its process still runs it has a new id, listed with the same host and pid",
    )


def _id_of(text: str) -> WorkerId | None:
    return WorkerId(int(text)) if _ID.fullmatch(text) and int(text) <= LARGEST_WORKER_ID else None
