"""What tests on PostgreSQL alone may ask for."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from app.domain.outcome import Completed
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
def lone_server() -> Iterator[postgres.Server]:
    """A server nobody else is on: no neighbour's transactions and WAL, no vacuum, no checkpoint, no full page after."""
    options = {"full_page_writes": "off", "autovacuum": "off", "checkpoint_timeout": "1h"}
    with tempfile.TemporaryDirectory(prefix="outlast-own-", dir=postgres.scratch()) as folder:
        Path(folder).chmod(0o711)  # the server may run under another account
        cluster = postgres.new_cluster(Path(folder) / "pg", **options)
        cluster.start()
        server = postgres.Server(cluster.dsn(postgres.SUPERUSER_DATABASE), worker="lone")
        try:
            yield server
        finally:
            server.close()
            cluster.stop("immediate")


@pytest.fixture
def lone_url(lone_server: postgres.Server) -> Iterator[str]:
    """The URL of a fresh, migrated database on the lone server."""
    name = lone_server.create()
    yield lone_server.url(name)
    lone_server.drop(name)


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
