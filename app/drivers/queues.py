"""The vocabulary of queue controls: pause and resume, how many jobs of a queue may run or wait, turns of its tenants.

A part of the job store's protocol, apart because no job is named here. Each keeps its row of the audit, when it is
given one, in its own commit. Implemented by every driver.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from ..domain.audit import AuditEntry
from ..domain.queue import QueueChange, QueueFacts


class QueueStore(Protocol):
    """A store of queues that can be held back."""

    async def pause_queue(
        self,
        queue: str,
        *,
        by: str,
        reason: str | None = None,
        until: datetime | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        """Stop claims from a queue at once; running jobs go on. It ends by itself at `until`, by the store's clock.

        Of a pause and one that stands already the longer stands, of two alike the first: a pause shortens none. Workers
        are told of an end, so that they look again then.
        """
        ...

    async def resume_queue(self, queue: str, *, audit: AuditEntry | None = None) -> None:
        """Let claims from a queue begin again; resuming one that is not paused changes nothing."""
        ...

    async def set_queue(
        self,
        queue: str,
        change: QueueChange,
        *,
        versions: frozenset[str] | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        """Set how many jobs of a queue may run in the fleet, how many ready and delayed ones it takes in, and turns.

        `PRECONDITION_FAILED` when the settings are in none of the versions: of two callers with the same, one wins.

        Jobs that run go on, jobs that wait stay; both limits count for what comes after. Ready jobs of a fair queue
        wait in the gate for their tenants' turns, also those that were ready before; once it is fair no more they leave
        the gate as they stand there. Repeating it is harmless.
        """
        ...

    async def queue_facts(self, queue: str) -> QueueFacts:
        """Give what decides whether jobs of a queue are claimed and taken in; of any name, also one nobody uses."""
        ...
