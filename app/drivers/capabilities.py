"""What a driver can do, as data, and what stands between it and its store.

Owns no behaviour. Given by every driver, read by whoever would otherwise ask which driver it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..domain.pooled import Pooled


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What differs between drivers, as data: tests and callers read it instead of guessing.

    The last three are known once the store is open. `pooled`: what connections go through, None when they reach the
    database itself. `can_listen`: wake-ups may arrive; without, polling carries from the start. `has_wall`: another
    tenant's rows are absent by more than the predicates of the statements.
    """

    name: str
    is_durable: bool
    pooled: Pooled | None = None
    can_listen: bool = True
    has_wall: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse:
    """The connections of this process for verbs: `size` is the most, `open` are connected, `busy` at work.

    `waiting` are verbs that wait for one.
    """

    size: int
    open: int
    busy: int
    waiting: int


@runtime_checkable
class HasPool(Protocol):
    """A driver whose verbs share connections."""

    @property
    def pool(self) -> PoolUse | None:
        """Give how they are used now, None where somebody else's pool does not say."""
        ...


def pool_of(driver: object) -> PoolUse | None:
    """Give how a driver's connections are used, None for a driver without."""
    return driver.pool if isinstance(driver, HasPool) else None
