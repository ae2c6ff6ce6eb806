"""The stream of hints: names and nothing else, soon after something happened, and an end when the process drains."""

from __future__ import annotations

import asyncio

import httpx
import pytest

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


async def test_a_stream_ends_with_the_key_of_its_visitor() -> None:
    async with memory_env() as env, Visitor(env, key=KEY).beside() as visitor, visitor.api.served() as (host, port):
        made = await visitor.api.client.post("/v1/api-keys", json={"label": "x", "scopes": ["jobs:read"]})
        entered = await visitor.browser.post("/ui/login", data={"key": made.json()["token"]})
        cookie = entered.headers["set-cookie"].partition(";")[0]
        async with (
            httpx.AsyncClient(base_url=f"http://{host}:{port}", headers={"Cookie": cookie}) as client,
            client.stream("GET", "/ui/stream?topics=jobs") as answer,
        ):
            chunks = answer.aiter_text()
            while "jobs-changed" not in await anext(chunks):
                pass
            await visitor.api.client.delete(f"/v1/api-keys/{made.json()['id']}")
            async with asyncio.timeout(10):
                assert "".join([chunk async for chunk in chunks]) == ""


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
