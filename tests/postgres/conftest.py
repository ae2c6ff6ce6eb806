"""What tests on PostgreSQL alone may ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.postgres.arena import Arena
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
