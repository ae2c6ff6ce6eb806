"""The part of the store protocol that is about what attempts came to over time: added up by workers, read by charts.

Nothing on the way of a job touches it: a worker adds what its process counted anyway, a few times a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..domain.flow import FlowKind, FlowPart, FlowPoint, FlowQuery


class FlowStore(Protocol):
    """A store that keeps counts of attempts."""

    async def add_flow(self, parts: Sequence[FlowPart]) -> None:
        """Add counts to the stretches of now, and forget those that are too old, in one commit.

        Not idempotent: of a call whose reply is lost nobody knows whether it was counted. These figures are for charts.
        """
        ...

    async def flow(self, query: FlowQuery) -> tuple[FlowPoint, ...]:
        """Give the stretches in order, without those in which nothing was counted."""
        ...

    async def flow_kinds(self, query: FlowQuery) -> tuple[FlowKind, ...]:
        """Give what each job type came to in these stretches, by name."""
        ...
