"""Panels fail alone: one that cannot be read says so, and the rest of the page is shown."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..domain.errors import OutlastError, QueryTooSlow

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel(Generic[ValueT]):
    """What a panel shows, or why it does not."""

    value: ValueT | None = None
    error: OutlastError | None = None

    def needed(self) -> ValueT:
        """Give what the page cannot do without; raises why it could not be read."""
        if self.error is not None:
            raise self.error
        assert self.value is not None, "a panel has a value or an error"  # noqa: S101 - see above
        return self.value


async def panel_of(reading: Awaitable[ValueT]) -> Panel[ValueT]:
    """Read what a panel shows; a refusal is shown in its place."""
    try:
        return Panel(value=await reading)
    except OutlastError as error:
        return Panel(error=error)


async def unless_slow(reading: Awaitable[ValueT]) -> tuple[ValueT | None, QueryTooSlow | None]:
    """Read what a page is about; where that takes too long the page says so, beside the filter to be narrowed."""
    try:
        return await reading, None
    except QueryTooSlow as error:
        return None, error
