"""A real Chromium in front of the real application; without one these tests are skipped, and in CI they fail."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, async_playwright

from tests.browser.sight import FLAGS, Sight
from tests.dashboard.visitor import Visitor
from tests.support.drivers import memory_env


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        missing = "no chromium in PATH: apt install chromium"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        await browser.close()


@pytest.fixture
async def sight(chromium: Browser) -> AsyncIterator[Sight]:
    """The pages of a service with something in every state, seen by a browser."""
    async with (
        memory_env() as env,
        Visitor(env).beside() as visitor,
        visitor.api.served() as (host, port),
        Sight(visitor, chromium, f"http://{host}:{port}").there() as there,
    ):
        yield there
