"""The stores tests run on: a fresh one in memory, or a schema of its own in a PostgreSQL database.

Composes drivers for the kit, as `bootstrap` does for processes; a store is opened by whoever makes an `Env`.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Protocol
from uuid import uuid4

from ..domain.clock import ManualClock
from ..domain.errors import SettingsInvalid
from ..drivers.memory.driver import MemoryDriver
from ..drivers.postgres.database import create_engine
from ..drivers.postgres.driver import PostgresDriver
from ..drivers.postgres.standstill import Standstill
from ..drivers.protocol import JobDriver
from .clock import start_time

MEMORY = "memory"
POSTGRES = "postgres"
URL_VARIABLE = "OUTLAST_TEST_DATABASE_URL"

_POOL_SIZE = 6


class KitStore(Protocol):
    """A store with a clock. Every process of a test gets a driver of its own where processes would."""

    clock: ManualClock

    async def begin(self, start: datetime | None = None) -> None:
        """Be empty, with the clock at `start`, else an hour from now. May be called again."""
        ...

    async def move(self, to: datetime) -> None:
        """Move the clock."""
        ...

    async def driver(self) -> JobDriver:
        """Open a driver for one process."""
        ...

    async def cut(self, driver: JobDriver) -> None:
        """End what a process that was killed had open."""
        ...

    async def end(self) -> None:
        """Close everything."""
        ...

    def another(self) -> AbstractAsyncContextManager[KitStore]:
        """Make another store of the same kind, for as long as the context is open."""
        ...


class MemoryStore:
    """A store in this process."""

    def __init__(self) -> None:
        self.clock = ManualClock(start_time())
        self._driver = MemoryDriver(self.clock)

    async def begin(self, start: datetime | None = None) -> None:
        """Make a new, empty store."""
        self.clock = ManualClock(start or start_time())
        self._driver = MemoryDriver(self.clock)
        await self._driver.open()

    async def move(self, to: datetime) -> None:
        """Move the clock."""
        self.clock.advance(to - self.clock.now())

    async def driver(self) -> JobDriver:
        """Give the store: all processes share it."""
        return self._driver

    async def cut(self, driver: JobDriver) -> None:
        """Do nothing: there are no connections."""

    async def end(self) -> None:
        """Close the store."""
        await self._driver.close()

    @asynccontextmanager
    async def another(self) -> AsyncIterator[KitStore]:
        """Make another store in this process."""
        yield MemoryStore()


class PostgresStore:
    """A schema of its own in a PostgreSQL database, made by `make` and dropped by `drop`."""

    def __init__(self, url: str, *, schema: str | None = None) -> None:
        self.clock = ManualClock(start_time())
        self.schema = schema or f"outlast_test_{uuid4().hex[:12]}"
        self._url = url
        self._engine = create_engine(url, pool_size=1, application_name="outlast test kit")
        self._standstill = Standstill(self._engine, self.schema)
        self._numbers = itertools.count(1)
        self._open: dict[int, tuple[JobDriver, str]] = {}

    async def make(self) -> None:
        """Make the schema."""
        await self._standstill.make(self._url)

    async def drop(self) -> None:
        """Drop the schema."""
        await self._standstill.drop()
        await self._engine.dispose()

    async def begin(self, start: datetime | None = None) -> None:
        """Close what is open, delete every row and set the clock."""
        await self._close_drivers()
        self.clock = ManualClock(start or start_time())
        await self._standstill.empty()
        await self._standstill.stop_clock(self.clock.now())

    async def move(self, to: datetime) -> None:
        """Move the database's clock, then ours."""
        await self._standstill.stop_clock(to)
        self.clock.advance(to - self.clock.now())

    async def driver(self) -> JobDriver:
        """Open a driver with connections of its own."""
        name = f"{self.schema} {next(self._numbers)}"
        engine = create_engine(self._url, pool_size=_POOL_SIZE, application_name=name)
        driver = PostgresDriver(engine, schema=self.schema, owns_engine=True)
        self._open[id(driver)] = (driver, name)
        await driver.open()
        return driver

    async def cut(self, driver: JobDriver) -> None:
        """End the connections of a driver whose process is gone."""
        await self._standstill.end_connections(self._open[id(driver)][1])

    async def end(self) -> None:
        """Close the drivers; the schema stays."""
        await self._close_drivers()
        await self._engine.dispose()

    @asynccontextmanager
    async def another(self) -> AsyncIterator[KitStore]:
        """Make another schema in the same database."""
        store = PostgresStore(self._url)
        await store.make()
        try:
            yield store
        finally:
            await store.drop()

    async def _close_drivers(self) -> None:
        opened, self._open = self._open, {}
        for driver, _ in opened.values():
            await driver.close()


def postgres_url(environ: dict[str, str]) -> str:
    """Give the address of the database for tests.

    Raises:
        SettingsInvalid: it is not set, or not PostgreSQL's.
    """
    url = environ.get(URL_VARIABLE, "")
    if not url.startswith("postgres"):
        raise SettingsInvalid(
            f"{URL_VARIABLE} is not set, and this test asks for PostgreSQL"
            if not url
            else f"{URL_VARIABLE} is not the address of a PostgreSQL database",
            fix=f"set {URL_VARIABLE}=postgresql://user@host/database; a schema of its own is made there and dropped",
        )
    return url
