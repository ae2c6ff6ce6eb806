"""A database as reads of many rows see it: the database itself, or one whose statements end by a time.

Such reads have no business with pools, wake-ups and what a driver remembers. Implemented by `Database` and by what
`look` bounds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from .database import Raw

T = TypeVar("T")


class Reader(Protocol):
    """Runs reads. `api_role` is who reads for callers of one tenant, None where there is none."""

    @property
    def api_role(self) -> str | None:
        """Give the role behind the wall between tenants."""
        ...

    def in_schema(self, sql: str) -> str:
        """Give SQL written with `outlast.` for the schema at hand."""
        ...

    async def run(self, verb: Callable[[Raw], Awaitable[T]]) -> T:
        """Run a verb that reads on a connection, again where others were in its way."""
        ...
