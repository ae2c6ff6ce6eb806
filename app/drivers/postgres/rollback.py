"""The connection class of ours: a transaction that is cancelled, or timed out, is not waited for.

asyncpg rolls back before it lets go, and for that asks the server over a connection of its own to end what it is doing:
where the network swallows everything, each takes as long as a statement may. Here that has a moment; then the
connection is ended, which rolls back as well. Used by `connect`.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from asyncpg import Connection
from asyncpg.transaction import Transaction

# A server that can be reached takes milliseconds.
ROLLBACK_SECONDS = 1.0


class OurConnection(Connection):  # type: ignore[misc]  # asyncpg ships no types
    """An asyncpg connection."""

    __slots__ = ()

    def transaction(self, *, isolation: str | None = None, readonly: bool = False, deferrable: bool = False) -> Any:  # noqa: ANN401  asyncpg ships no types
        """Give a transaction, begun by entering it."""
        return _Transaction(self, isolation, readonly, deferrable)


class _Transaction(Transaction):  # type: ignore[misc]  # same
    __slots__ = ()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or not issubclass(kind, asyncio.CancelledError | TimeoutError):
            await super().__aexit__(kind, error, trace)
            return
        try:
            async with asyncio.timeout(ROLLBACK_SECONDS):
                await super().__aexit__(kind, error, trace)
        except TimeoutError:
            self._connection.terminate()
