"""The stream of hints: names and nothing else, soon after something happened, and an end when the process drains."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import httpx
import pytest

from app.dashboard import stream
from app.dashboard.stream import Streams
from app.domain.errors import RateLimited
from tests.dashboard.visitor import KEY, Visitor
from tests.support.drivers import memory_env


@pytest.mark.parametrize(
    ("topics", "event"), [("jobs", "jobs-changed"), ("job:x", "jobs-changed"), ("", "jobs-changed")]
)
async def test_a_stream_says_that_something_happened_and_not_what(topics: str, event: str) -> None:
    async with memory_env() as env, Visitor(env).beside() as visitor, visitor.api.served() as (host, port):
        async with (
            httpx.AsyncClient(base_url=f"http://{host}:{port}") as client,
            client.stream("GET", f"/ui/stream?topics={topics}") as answer,
        ):
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["x-accel-buffering"] == "no"
            lines = answer.aiter_lines()
            seen = []
            await visitor.api.post(payload={"secret": "swordfish"})
            async with asyncio.timeout(10):
                async for line in lines:
                    seen.append(line)
                    if line.startswith("data:") and len(seen) > 3:
                        break
        assert f"event: {event}" in seen
        assert {line for line in seen if line.startswith("data:")} == {"data: {}"}


async def test_a_stream_ends_when_the_process_drains() -> None:
    async with memory_env() as env, Visitor(env).beside() as visitor, visitor.api.served() as (host, port):
        async with (
            httpx.AsyncClient(base_url=f"http://{host}:{port}") as client,
            client.stream("GET", "/ui/stream?topics=jobs") as answer,
        ):
            visitor.api.is_draining = True
            async with asyncio.timeout(10):
                text = (await answer.aread()).decode()
        assert text.endswith("event: draining\ndata: {}\n\n")


async def _revoke(visitor: Visitor, _browser: httpx.AsyncClient, key_id: str) -> None:
    assert (await visitor.api.client.delete(f"/v1/api-keys/{key_id}")).status_code == 200


async def _sign_out(_visitor: Visitor, browser: httpx.AsyncClient, _key_id: str) -> None:
    token = re.search(r'name="token" value="([0-9a-f]+)"', (await browser.get("/ui/")).text)
    assert token is not None
    assert (await browser.post("/ui/logout", data={"token": token[1]})).status_code == 303


@pytest.mark.parametrize("leave", [_revoke, _sign_out])
async def test_a_stream_ends_within_a_tick_of_its_visitors_key_and_session(
    leave: Callable[[Visitor, httpx.AsyncClient, str], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_LOOK_SECONDS", 0.25)
    async with memory_env() as env, Visitor(env, key=KEY).beside() as visitor, visitor.api.served() as (host, port):
        made = await visitor.api.client.post("/v1/api-keys", json={"label": "x", "scopes": ["jobs:read"]})
        entered = await visitor.browser.post("/ui/login", data={"key": made.json()["token"]})
        headers = {"Cookie": entered.headers["set-cookie"].partition(";")[0], "Sec-Fetch-Site": "same-origin"}
        async with (
            httpx.AsyncClient(base_url=f"http://{host}:{port}", headers=headers) as browser,
            browser.stream("GET", "/ui/stream?topics=jobs") as answer,
        ):
            chunks = answer.aiter_text()
            while "jobs-changed" not in await anext(chunks):
                pass
            await leave(visitor, browser, made.json()["id"])
            async with asyncio.timeout(2):
                after = "".join([chunk async for chunk in chunks])
            assert after.count("event:") <= 1, "one may have been under way"
            assert (await browser.get("/ui/stream?topics=jobs")).status_code == 303, "and it does not begin again"


def test_streams_of_one_visitor_and_of_all_are_bounded() -> None:
    streams = Streams(most=3, most_each=2)
    with streams.admit("a"), streams.admit("a"), streams.admit("b"), pytest.raises(RateLimited), streams.admit("c"):
        pass
    assert streams.count == 0
    with streams.admit("a"), streams.admit("a"):
        with pytest.raises(RateLimited), streams.admit("a"):
            pass
        with streams.admit("b"):
            assert streams.count == 3
