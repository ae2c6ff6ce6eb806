"""The rows of fair queues: which they are, which jobs wait for their turn, and how far each tenant has come.

Values and their tables; a part of `Store`. What is done with them is `turns`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...domain.job import JobId
from ...domain.turns import Turn


@dataclass(slots=True)
class Turns:
    """Everything the store knows of turns.

    `marked` are jobs whose token is for the gate because their queue was fair when it was made or met there; they keep
    the mark wherever they go. `lined` are those of them that wait for their turn.
    """

    fair: set[str] = field(default_factory=set)
    marked: set[JobId] = field(default_factory=set)
    lined: set[JobId] = field(default_factory=set)
    of: dict[tuple[str, str], Turn] = field(default_factory=dict)  # by queue and tenant

    def time(self, queue: str) -> float:
        """Give a queue's virtual time: when the last start began."""
        return max((turn.started for (name, _), turn in self.of.items() if name == queue), default=0.0)

    def turn(self, queue: str, tenant: str) -> Turn:
        """Give a tenant's turn in a queue."""
        return self.of.get((queue, tenant), Turn())

    def move(self, queue: str, tenant: str, begins: float, starts: int) -> None:
        """Count starts of a tenant, the first of which began then."""
        self.of[queue, tenant] = self.turn(queue, tenant).moved(begins, starts)

    def weigh(self, queue: str, weights: Mapping[str, int | None]) -> None:
        """Set the weights of tenants, or take them away."""
        for tenant, weight in weights.items():
            self.of[queue, tenant] = replace(self.turn(queue, tenant), weight=weight)

    def weights(self, queue: str) -> dict[str, int]:
        """Give the weights that are set in a fair queue, by tenant."""
        if queue not in self.fair:
            return {}
        return {
            tenant: turn.weight
            for (name, tenant), turn in sorted(self.of.items())
            if name == queue and turn.weight is not None
        }
