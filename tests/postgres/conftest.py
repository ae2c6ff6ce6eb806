"""What tests on PostgreSQL alone may ask for."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from app.cli.devdb import DevPostgres
from app.domain.outcome import Completed
from app.drivers.postgres.connect import dsn_of
from tests.postgres.arena import Arena
from tests.support import postgres
from tests.support.drivers import postgres_env


@pytest.fixture
async def arena(database_url: str) -> AsyncIterator[Arena]:
    """A migrated, empty database to race on."""
    async with postgres_env(database_url) as env:
        arena = Arena(env, database_url)
        try:
            yield arena
        finally:
            await arena.end()


@pytest.fixture(scope="session")
def lone_server() -> Iterator[DevPostgres]:
    """A server nobody else is on: no neighbour's transactions and WAL, no vacuum, no checkpoint, no full page after."""
    options = {"full_page_writes": "off", "autovacuum": "off", "checkpoint_timeout": "1h"}
    with tempfile.TemporaryDirectory(prefix="outlast-own-", dir=postgres.scratch()) as folder:
        Path(folder).chmod(0o711)  # the server may run under another account
        cluster = postgres.new_cluster(Path(folder) / "pg", **options)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop("immediate")


@pytest.fixture
async def lone_url(lone_server: DevPostgres) -> AsyncIterator[str]:
    """The URL of a fresh, migrated database on the lone server."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    admin = await asyncpg.connect(dsn_of(lone_server.dsn(postgres.SUPERUSER_DATABASE)))
    try:
        await admin.execute(f"create database {name}")
        await postgres.migrate(lone_server.dsn(name))
        yield lone_server.dsn(name)
        await admin.execute(f"drop database {name} with (force)")
    finally:
        await admin.close()


@pytest.fixture
async def lone_arena(lone_url: str) -> AsyncIterator[Arena]:
    """A migrated, empty database on the lone server, to race on; its driver knows one connection and one job type."""
    async with postgres_env(lone_url, pool_size=1) as env:
        await env.close_attempt((await env.running()).token, Completed())
        arena = Arena(env, lone_url)
        try:
            yield arena
        finally:
            await arena.end()
