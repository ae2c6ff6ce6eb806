"""Fixtures of the HTTP tests: the application over the memory driver, or over each driver in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.http.api import KEY, Api, job_type
from tests.support.drivers import DriverEnv, driver_kind, driver_url, env, memory_env

__all__ = ["driver_kind", "driver_url", "env"]


@pytest.fixture
async def memory() -> AsyncIterator[DriverEnv]:
    """An empty memory driver."""
    async with memory_env() as opened:
        yield opened


@pytest.fixture
async def api(memory: DriverEnv) -> AsyncIterator[Api]:
    """The open service of `dev`, with one job type that takes anything."""
    made = Api(memory)
    await memory.driver.publish_job_types([job_type()])
    async with made.client:
        yield made


@pytest.fixture
async def locked(memory: DriverEnv) -> AsyncIterator[Api]:
    """The service with a key; its client has it."""
    made = Api(memory, key=KEY)
    await memory.driver.publish_job_types([job_type()])
    async with made.client:
        yield made


@pytest.fixture
async def each_api(env: DriverEnv) -> AsyncIterator[Api]:
    """The open service over each driver in turn."""
    made = Api(env)
    await env.driver.publish_job_types([job_type()])
    async with made.client:
        yield made
