"""The part of the store protocol that is about what attempts came to over time: added up by workers, read by charts.

Nothing on the way of a job touches it: a worker adds what its process counted anyway, a few times a minute.
"""

from __future__ import annotations

from typing import Protocol

from ..domain.flow import FlowBatch, FlowKind, FlowPoint, FlowQuery

# Of so many batches a process knows whether they were added: it has one under way at a time.
BATCHES_KNOWN = 100


class FlowStore(Protocol):
    """A store that keeps counts of attempts."""

    async def add_flow(self, batch: FlowBatch) -> None:
        """Add counts to the stretches of now, and forget those that are too old, in one commit.

        Idempotent by the batch's id, for the last batches of a process: one whose reply was lost is counted once.

        Raises:
            DriverUnavailable: the store is away, or still at an earlier try of the same batch.
        """
        ...

    async def flow(self, query: FlowQuery) -> tuple[FlowPoint, ...]:
        """Give the stretches in order, without those in which nothing was counted."""
        ...

    async def flow_kinds(self, query: FlowQuery) -> tuple[FlowKind, ...]:
        """Give what each job type came to in these stretches, by name."""
        ...
