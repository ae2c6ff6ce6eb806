"""A browser's view of the pages over the memory driver: an application with its door open, and one that is locked."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.dashboard.visitor import KEY, Visitor
from tests.support.drivers import memory_env


@pytest.fixture
async def visitor() -> AsyncIterator[Visitor]:
    async with memory_env() as env, Visitor(env).there() as there:
        yield there


@pytest.fixture
async def stranger() -> AsyncIterator[Visitor]:
    async with memory_env() as env, Visitor(env, key=KEY).there() as there:
        yield there
