"""A doctor over a database of the test's own, and somebody who does what it says.

`mend` runs the commands of a finding as an operator would type them: SQL as an administrator of the database. What is
no SQL a test does itself, by what the command says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from app.control.doctor.doctor import Doctor
from app.control.doctor.finding import Finding, Level, Limits, Report, Surroundings
from app.drivers.outbox import outbox_of
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver

SURROUNDINGS = Surroundings(pool_size=4, drain=timedelta(seconds=25))


def clock() -> datetime:
    """Give this machine's time, which the doctor compares with the server's."""
    return datetime.now(UTC)


class Clinic:
    """One database, looked at through connections that are new each time, as a command's are."""

    def __init__(self, url: str, *, listen_url: str | None = None, schema: str = "outlast") -> None:
        self.url = url
        self.schema = schema
        self.listen_url = listen_url
        self.surroundings = SURROUNDINGS
        self.limits = Limits()
        self.now: Callable[[], datetime] = clock

    @asynccontextmanager
    async def driver(self) -> AsyncIterator[PostgresDriver]:
        """Give a driver that is not open; what it refuses to open on is what the doctor is asked about."""
        engine = create_engine(self.url, pool_size=4)
        driver = PostgresDriver(engine, schema=self.schema, listen_url=self.listen_url, owns_engine=True)
        try:
            yield driver
        finally:
            await driver.close()

    async def report(self) -> Report:
        """Examine once."""
        async with self.driver() as driver:
            doctor = Doctor(
                driver,
                outbox_of(driver),
                surroundings=lambda: self.surroundings,
                limits=self.limits,
                now=self.now,
            )
            return await doctor.examine()

    async def find(self, code: str) -> Finding:
        """Give what one check finds."""
        return {result.check.code: result.finding for result in (await self.report()).results}[code]

    async def sick(self, code: str, level: Level = Level.FAIL) -> Finding:
        """Demand that a check finds something wrong, with a repair, and give it."""
        finding = await self.find(code)
        assert finding.level is level, finding
        assert finding.fix, finding
        return finding

    async def well(self, code: str) -> Finding:
        """Demand that a check finds nothing wrong."""
        finding = await self.find(code)
        assert finding.level is Level.OK, finding
        return finding

    async def execute(self, *statements: str) -> None:
        """Run statements as an administrator, each by itself."""
        connection = await self.connect()
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    async def connect(self) -> Any:
        """Give a session of an administrator's own."""
        return await asyncpg.connect((self.listen_url or self.url).replace("+asyncpg", ""))

    async def mend(self, finding: Finding) -> None:
        """Do what the finding says."""
        assert finding.commands, finding
        await self.execute(*finding.commands)
