"""Panels fail alone: one that cannot be read says so, and the rest of the page is shown."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..domain.errors import OutlastError

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel(Generic[ValueT]):
    """What a panel shows, or why it does not."""

    value: ValueT | None = None
    error: OutlastError | None = None


async def panel_of(reading: Awaitable[ValueT]) -> Panel[ValueT]:
    """Read what a panel shows; a refusal is shown in its place."""
    try:
        return Panel(value=await reading)
    except OutlastError as error:
        return Panel(error=error)
