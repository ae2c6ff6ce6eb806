"""The look below the low-water marks: what somebody had locked when a claim passed over it may lie there.

It walks what a snapshot that somebody keeps open has kept, as a claim without marks would, and beside the claims. Owns
its task, of which there is one at a time; when a look is due, and what it means, is `low_water`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from ...domain.errors import OutlastError
from .apart import start_apart
from .low_water import Below, LowWater

T = TypeVar("T")

# A statement that is cut off costs its connection.
_LAST_SECONDS = 0.5

LOOK_BELOW = """
select exists (
  select from unnest($1::text[], $2::int[], $3::bigint[]) m(queue, rank, seq)
  cross join lateral (
    select from outlast.ready r
    where r.queue = m.queue and r.rank = m.rank and r.seq <= m.seq and r.name_id = any($4::int[]) limit 1) x)"""


class Marked(Protocol):
    """The database whose marks they are."""

    low_water: LowWater

    async def run(self, verb: Callable[[Any], Awaitable[T]]) -> T:
        """Run a verb on a connection."""
        ...

    def in_schema(self, sql: str) -> str:
        """Give a statement for the schema."""
        ...


class LowLook:
    """Looks below the marks of one database."""

    def __init__(self, db: Marked) -> None:
        self._db = db
        self._task: asyncio.Task[None] | None = None

    def after_claim(self, names: Sequence[int]) -> None:
        """Begin a look when one is due, for job types by their numbers: those the marks are good for."""
        below = self._db.low_water.below()
        if below is not None:
            self._task = start_apart(self._look(below, names), name="outlast.low_water")

    async def close(self) -> None:
        """Let the look under way end, within a bound; called when the driver closes."""
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=_LAST_SECONDS)
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _look(self, below: Below, names: Sequence[int]) -> None:
        is_empty = False
        columns = [list(column) for column in zip(*below.marks, strict=True)]
        sql = self._db.in_schema(LOOK_BELOW)
        try:
            is_empty = not await self._db.run(lambda conn: conn.fetchval(sql, *columns, names))
        except OutlastError:
            pass  # whoever claims next hears of it, too
        finally:
            self._db.low_water.looked(below, is_empty=is_empty)
