"""What every measurement stands on: a durable PostgreSQL of its own, databases in it, and its meters.

The server keeps `fsync` and synchronous commits on: figures without them are figures of another product. CPU is read
from the operating system, WAL from the server; both count the server as a whole, so nothing else may run on it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from app.cli.devdb import DevPostgres
from app.drivers.postgres import migrations
from app.drivers.postgres.connect import dsn_of
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver

OPTIONS = {
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "max_connections": "200",
    "shared_preload_libraries": "pg_stat_statements",
}
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """One server; `fresh` gives a migrated database in it."""

    server: DevPostgres
    version: str

    @asynccontextmanager
    async def fresh(self, name: str) -> AsyncIterator[str]:
        """Make a migrated database, give its address, drop it."""
        admin = await asyncpg.connect(dsn_of(self.server.dsn("postgres")))
        try:
            await admin.execute(f'drop database if exists "{name}" with (force)')
            await admin.execute(f'create database "{name}"')
            url = self.server.dsn(name)
            await migrations.upgrade(url)
            yield url
        finally:
            await admin.execute(f'drop database if exists "{name}" with (force)')
            await admin.close()

    def cpu_seconds(self) -> float:
        """Give the CPU time of the server's living processes and of those it has reaped."""
        postmaster = self.server.pid
        assert postmaster is not None
        total = cpu_of(postmaster, with_children=True)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _parent_of(entry.name) == postmaster:
                total += cpu_of(int(entry.name))
        return total


@contextmanager
def bed(version: str | None) -> Iterator[Bed]:
    """Start the server in a temporary folder, and stop it."""
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as folder:
        server = DevPostgres(Path(folder), version=version, durable=True, options=OPTIONS)
        server.start()
        try:
            yield Bed(server=server, version=version or "18")
        finally:
            server.stop()


@asynccontextmanager
async def driver_on(url: str, *, pool_size: int = 10) -> AsyncIterator[PostgresDriver]:
    """Open a driver, close it with its engine."""
    driver = PostgresDriver(create_engine(url, pool_size=pool_size), owns_engine=True)
    await driver.open()
    try:
        yield driver
    finally:
        await driver.close()


@asynccontextmanager
async def raw_on(url: str) -> AsyncIterator[Any]:
    """Open one bare asyncpg connection with the plan settings the driver's connections have."""
    settings = {"jit": "off", "enable_seqscan": "off", "synchronous_commit": "on"}
    connection = await asyncpg.connect(dsn_of(url), server_settings=settings)
    try:
        yield connection
    finally:
        await connection.close()


async def wal_position(connection: Any) -> int:
    """Give the server's WAL position in bytes."""
    return int(await connection.fetchval("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"))


def _parent_of(pid: str) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def cpu_of(pid: int, *, with_children: bool = False) -> float:
    """Give a process's CPU time in seconds, on demand with that of its ended children; nought when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(ticks) for ticks in fields[11 : 15 if with_children else 13]) / _TICKS


def cpu_of_one(pid: int) -> float:
    """Give the CPU seconds of a process with one thread, to the nanosecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
