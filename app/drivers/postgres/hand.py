"""The connections at hand: what was checked out of the engine's pool is kept for the next verb instead of given back.

Checking out and in costs as much as a small statement. Kept connections count as checked out, so this is only for an
engine nobody else uses; verbs share them, the one used last first, whose statements are prepared. One that a verb
waits for goes back to the pool, which knows who waits longest; so does one for a session, which is checked out of the
pool itself. Owned by `database`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from sqlalchemy import PoolProxiedConnection, QueuePool
from sqlalchemy.ext.asyncio import AsyncEngine

from ..capabilities import PoolUse


class Taken(NamedTuple):
    """A connection as the pool knows it, and the asyncpg connection beneath."""

    checked_out: PoolProxiedConnection
    driver: Any


class Hand:
    """Takes connections for verbs and takes them back. Without `keeps` each goes back to the pool at once."""

    def __init__(self, engine: AsyncEngine, *, keeps: bool) -> None:
        self._engine = engine
        self._keeps = keeps
        self._kept: list[Taken] = []
        self._waiting = 0

    @property
    def use(self) -> PoolUse | None:
        """Give how the connections are used: those at hand are open and idle. None for a pool of another kind."""
        pool = self._engine.pool
        if not isinstance(pool, QueuePool):
            return None
        out = pool.checkedout()
        return PoolUse(
            size=pool.size(), open=out + pool.checkedin(), busy=max(0, out - len(self._kept)), waiting=self._waiting
        )

    async def take(self) -> Taken:
        """Give a connection that is open as far as asyncpg knows; waits for one while all are in use."""
        while self._kept:
            taken = self._kept.pop()
            if not taken.driver.is_closed():
                return taken
            taken.checked_out.invalidate()
        self._waiting += 1
        try:
            while True:
                checked_out = await self._engine.raw_connection()
                taken = Taken(checked_out, checked_out.driver_connection)
                if not taken.driver.is_closed():
                    return taken
                checked_out.invalidate()
        finally:
            self._waiting -= 1

    @contextmanager
    def lending(self) -> Iterator[None]:
        """Leave the pool a connection to check out: one at hand, if there is one, else the next that is given back."""
        if self._kept:
            self._kept.pop(0).checked_out.close()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def give(self, taken: Taken) -> None:
        """Take back a connection that can be used again."""
        if self._keeps and not self._waiting:
            self._kept.append(taken)
        else:
            taken.checked_out.close()

    def throw_away(self, taken: Taken) -> None:
        """End a connection of which nobody knows what it is doing."""
        taken.driver.terminate()
        taken.checked_out.invalidate()

    def throw_away_kept(self) -> None:
        """End every connection at hand: one like them has answered nothing, and each would be waited for in turn."""
        while self._kept:
            self.throw_away(self._kept.pop())

    def close(self) -> None:
        """Give every kept connection back to the pool, and keep none from now on."""
        self._keeps = False
        while self._kept:
            self._kept.pop().checked_out.close()
