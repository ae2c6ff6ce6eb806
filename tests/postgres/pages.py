"""Hot statements under EXPLAIN on a connection with the driver's settings: the pages each touches, then taken back.

What a statement touches does not depend on the machine. Claims are asked for as the driver asks, for one queue or
several, alone or behind a settle. Used by the tests of what jobs cost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg

from app.domain.job import WorkerId
from app.domain.outcome import Completed, Settlement
from app.drivers.postgres.claim import CLAIM_MANY, CLAIM_ONE, columns_of
from app.drivers.postgres.connect import connect, dsn_of
from app.drivers.postgres.low_water import LowWater
from app.drivers.postgres.settle import SETTLE, SETTLE_DONE, as_sent
from app.drivers.postgres.settle import columns_of as settle_columns_of
from app.drivers.postgres.settle_and_claim import (
    SETTLE_AND_CLAIM_MANY,
    SETTLE_AND_CLAIM_ONE,
    SETTLE_DONE_AND_CLAIM_MANY,
    SETTLE_DONE_AND_CLAIM_ONE,
)
from tests.postgres.meter import Meter, buffers, metered
from tests.support.made import QUEUE, new_job

ROOM = 50
ALONE = {"one queue": CLAIM_ONE, "several": CLAIM_MANY}
# `settle` takes any outcome, `done` only those of jobs without a key that returned.
SETTLES = {"settle": SETTLE, "done": SETTLE_DONE}
FUSED = {
    "settle and one queue": SETTLE_AND_CLAIM_ONE,
    "settle and several": SETTLE_AND_CLAIM_MANY,
    "done and one queue": SETTLE_DONE_AND_CLAIM_ONE,
    "done and several": SETTLE_DONE_AND_CLAIM_MANY,
}
CLAIMS = ALONE | FUSED


class Pages:
    """Statements of one worker, each taken back. `held` is what a fused one settles."""

    def __init__(self, connection: Any, meter: Meter, worker: WorkerId, name_id: int) -> None:
        self.connection = connection
        self.meter = meter
        self.worker = worker
        self.name_id = name_id
        self.held: tuple[Settlement, ...] = ()

    async def hold(self, count: int = ROOM) -> None:
        """Claim jobs of the worker's own, for statements that settle."""
        await self.meter.enqueue(count)
        claimed = await self.meter.claim(self.worker, count)
        assert len(claimed) == count
        self.held = tuple(Settlement(one.token, Completed(), is_keyed=False) for one in claimed)

    async def of_claim(self, verb: str, room: int = ROOM, *, water: LowWater | None = None) -> int:
        """Give the pages a claim of a full `room` touches, the second time."""
        sql, binds = CLAIMS[verb], self._binds(verb, room, water)
        await buffers(self.connection, sql, binds)
        pages, rows = await buffers(self.connection, sql, binds)
        assert rows == room + 1, "the rows taken and the header"
        return pages

    async def of_idle_look(self, verb: str, *, water: LowWater | None = None) -> int:
        """Give the pages of a claim that finds nothing."""
        pages, rows = await buffers(self.connection, CLAIMS[verb], self._binds(verb, ROOM, water))
        assert rows == 1
        return pages

    async def of_settle(self, verb: str) -> int:
        """Give the pages of settling what is held as done, the second time; none for a claim that stands alone."""
        if verb in ALONE:
            return 0
        sql, binds = SETTLES[verb.partition(" and ")[0]], self._settled(verb)
        await buffers(self.connection, sql, binds)
        pages, rows = await buffers(self.connection, sql, binds)
        assert rows == len(self.held)
        return pages

    async def of(self, sql: str, *binds: object) -> int:
        """Give the pages of any statement, the second time."""
        await buffers(self.connection, sql, binds)
        return (await buffers(self.connection, sql, binds))[0]

    async def tidy(self) -> None:
        """Do what autovacuum does."""
        await self.connection.execute("vacuum (analyze)")

    def _binds(self, verb: str, room: int, water: LowWater | None) -> tuple[object, ...]:
        stretches = (water or LowWater(monotonic=float, roll=float)).stretches([QUEUE])
        return (*self._settled(verb), self.worker, [QUEUE], [room], [self.name_id], room, True, *columns_of(stretches))

    def _settled(self, verb: str) -> tuple[object, ...]:
        if verb in ALONE:
            return ()
        if verb.startswith("settle"):
            return tuple(settle_columns_of(self.held))
        sent = as_sent(self.held)
        assert sent.is_plain
        return tuple(sent.columns)


@asynccontextmanager
async def warm_meter(url: str, *, lease: timedelta = timedelta(minutes=10)) -> AsyncIterator[tuple[Meter, WorkerId]]:
    """Open a counted driver that has done everything once: statements are prepared, job types have numbers."""
    async with metered(url) as meter:
        worker = await meter.register(lease)
        await meter.enqueue(100)
        await meter.driver.enqueue(new_job())
        await meter.driver.enqueue(new_job(key="warm"))
        await meter.finish(await meter.claim(worker, 200))
        yield meter, worker


@asynccontextmanager
async def open_pages(url: str) -> AsyncIterator[Pages]:
    """Open statements to be explained; nothing is ready, and a room's worth of claims is held."""
    async with warm_meter(url) as (meter, worker):
        connection = await connect(url, application_name="costs")
        try:
            pages = Pages(connection, meter, worker, await connection.fetchval("select id from outlast.job_name"))
            await pages.hold()
            await pages.tidy()
            yield pages
        finally:
            await connection.close()


@asynccontextmanager
async def administrator(url: str) -> AsyncIterator[Any]:
    """Open a connection without the driver's settings and timeouts."""
    connection = await asyncpg.connect(dsn_of(url))
    try:
        yield connection
    finally:
        await connection.close()
