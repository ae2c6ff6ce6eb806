"""The examples of the guide, run as they stand against a service whose worker does what it gets."""

from __future__ import annotations

import asyncio
import re
import runpy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.client import AsyncClient, Client
from app.client.bound import Sync, SyncPages
from app.domain.outcome import Completed
from tests.client.conftest import PROMPT
from tests.client.test_requests import methods
from tests.http.api import Api, dead, job_type
from tests.http.runs import say
from tests.support.source import CHECKOUT

PAGE = (CHECKOUT / "docs/how-to/use-the-client.md").read_text()
NAME = "demo.count_lines"
RESULT = '{"file": "a sample", "lines": 3, "words": 9, "bytes": 40, "longest_line": 12}'


@pytest.fixture
def guide(tmp_path: Path) -> dict[str, Any]:
    """Everything the guide's examples define."""
    defined: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        (tmp_path / "example.py").write_text(block)
        names = runpy.run_path(str(tmp_path / "example.py"))
        # Two examples say `count_lines`: the function of the first, and the handle.
        defined = names | defined
    return defined


@asynccontextmanager
async def worked(api: Api) -> AsyncIterator[str]:
    """Serve an application with a worker beside it; gives the address."""
    await api.env.driver.publish_job_types([job_type(NAME)])
    worker = await api.env.register()

    async def work() -> None:
        while True:
            await api.env.advance(timedelta(milliseconds=5))
            await api.env.driver.promote()
            for claimed in await api.env.claim(worker, names=(NAME,)):
                await say(api, claimed, "counting", progress=(0.5, None))
                await api.env.close_attempt(claimed.token, Completed(result=RESULT))
            await asyncio.sleep(0.01)

    async with api.served() as (host, port):
        working = asyncio.ensure_future(work())
        try:
            yield f"http://{host}:{port}"
        finally:
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working


async def test_the_examples_do_what_the_guide_says(api: Api, guide: dict[str, Any]) -> None:
    async with worked(api) as url, AsyncClient(url, patience=PROMPT) as awaited:
        assert await guide["count"](awaited) == 3
        with Client(url, patience=PROMPT) as client:
            assert await asyncio.to_thread(guide["count_files"], client, ["a", "b"]) == 2
        job = await awaited.enqueue(NAME, {})
        await awaited.wait(job)
        with Client(url, patience=PROMPT) as client:
            assert await asyncio.to_thread(guide["watch"], client, str(job.id)) == ["counting", "50%"]
            assert await asyncio.to_thread(guide["cancel"], client, str(job.id)) == "already_finished"
            assert await asyncio.to_thread(guide["cancel"], client, "no such job") == "gone"


async def test_the_first_example_waits_for_a_delayed_job(api: Api, guide: dict[str, Any]) -> None:
    async with worked(api) as url:
        with Client(url, patience=PROMPT) as client:
            assert (await asyncio.to_thread(guide["count_lines"], client))["lines"] == 3


async def test_the_operators_example_tidies_up(api: Api, guide: dict[str, Any]) -> None:
    await api.env.driver.publish_job_types([job_type(NAME)])
    await api.post(name=NAME)
    claimed = await api.env.claim_one(await api.env.register(), names=(NAME,))
    await api.env.close_attempt(claimed.token, dead())
    waits = await api.post(name=NAME, delay_ms=60_000)
    async with api.served() as (host, port):
        with Client(f"http://{host}:{port}", patience=PROMPT) as client:
            assert await asyncio.to_thread(guide["tidy"], client) == 1
    assert (await api.get(waits))["priority"] == 1


def test_the_guide_names_exactly_the_methods_there_are() -> None:
    told = set(re.findall(r"[a-z_]+", "".join(re.findall(r"^\| [^|]+ \| (`[a-z_ `,]+`) \|$", PAGE, re.MULTILINE))))
    own = {name for name, kind in vars(Client).items() if isinstance(kind, Sync | SyncPages)} | {"wait", "events"}
    beside = {way.partition(".")[2] for way in methods(Client("http://localhost")) if "." in way}
    assert told == own | beside
