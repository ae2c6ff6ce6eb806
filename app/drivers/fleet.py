"""The vocabulary of workers as processes: they register, show how they do, are asked to leave, and leave.

A part of the job store's protocol, apart because no job is named here. Implemented by every driver.
"""

from __future__ import annotations

from typing import Protocol

from ..domain.audit import AuditEntry
from ..domain.drain import DrainAsk, DrainShown, DrainView
from ..domain.job import WorkerId
from ..domain.snapshot import NewWorker, WorkerView


class FleetStore(Protocol):
    """A store of workers."""

    async def register_worker(self, worker: NewWorker) -> WorkerId:
        """Give a new worker id with a lease of `lease_ms` that starts now. Ids never repeat.

        Repeating it gives the same id while that worker lives: its `boot_id` says that it is the same, a reply lost.
        """
        ...

    async def show_worker(self, worker_id: WorkerId, *, wakeup: str | None, drain: DrainShown | None) -> None:
        """Show others how the worker learns of work (`listen`, `polling`) and how far its drain is."""
        ...

    async def ask_drain(self, worker_id: WorkerId, *, by: str, audit: AuditEntry | None = None) -> DrainAsk:
        """Ask a worker to drain: it learns so at its next renewal, and is woken for one.

        Asking again keeps who asked first. A worker whose lease has passed is lost, reaped or not, unless its drain had
        come to the last phase: then it has left.
        """
        ...

    async def drains(self, *, limit: int, before: WorkerId | None = None) -> tuple[DrainView, ...]:
        """Give the reports of drained workers, newest first, those of ids below `before`; the newest 1,000 are kept.

        How long jobs waited for their next claim is read from their tokens and ledgers as they are now.
        """
        ...

    async def close_worker(self, worker_id: WorkerId) -> None:
        """Close a worker in order. Claims it still has are returned uncounted by the next reap."""
        ...

    async def workers(self) -> tuple[WorkerView, ...]:
        """Give live workers and those that left in the last hour, newest first."""
        ...
