"""The kit's world in memory and on PostgreSQL: what holds of it, holds of both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from app.testing import Env, MemoryStore, PostgresStore, open_env
from app.testing.stores import KitStore
from tests.support.postgres import Server

STORES = [pytest.param("memory", id="memory"), pytest.param("postgres", id="postgres", marks=pytest.mark.postgres)]


@pytest.fixture(scope="session")
def kit_schema(postgres_server: Server) -> Iterator[tuple[str, str]]:
    """The URL of a database with a schema of tests, and that schema's name."""
    name = postgres_server.create(migrated=False)
    url = postgres_server.url(name)

    async def make() -> str:
        store = PostgresStore(url)
        await store.make()
        await store.end()
        return store.schema

    yield url, asyncio.run(make())
    postgres_server.drop(name)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> KitStore:
    if request.param == "memory":
        return MemoryStore()
    url, schema = request.getfixturevalue("kit_schema")
    return PostgresStore(url, schema=schema)


@pytest.fixture
async def env(request: pytest.FixtureRequest, store: KitStore) -> AsyncIterator[Env]:
    marker = request.node.get_closest_marker("outlast")
    async with open_env(store, **({} if marker is None else marker.kwargs)) as opened:
        yield opened
