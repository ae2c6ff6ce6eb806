"""Being told that something changes, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from app.control.keys import KeyOrder
from app.control.topics import Topic, TopicStream, TopicStreams
from app.domain.api_key import Scope
from app.domain.audit import Acting
from app.domain.errors import RateLimited
from app.drivers.protocol import Wake
from tests.http.api import Api, code_of
from tests.support.drivers import DriverEnv
from tests.support.sse import Reader, stream_of

pytestmark = pytest.mark.timeout(40)
PATH = "/v1/events/stream"
# Longer than any test, so that what is named was heard.
_NEVER = 1_000.0


@asynccontextmanager
async def following(api: Api, query: str = "") -> AsyncIterator[Reader]:
    """Follow topics over a socket."""
    async with (
        api.served() as (host, port),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False, timeout=20) as client,
        stream_of(client, PATH + query) as reader,
    ):
        yield reader


async def test_every_topic_is_named_at_the_start_and_what_happens_after_it(each_env: DriverEnv) -> None:
    api = Api(each_env, topics=TopicStreams(each_env.driver, hint_seconds=_NEVER))
    await each_env.driver.enqueue_many([])
    async with api.client, following(api) as reader:
        first = await reader.until("workers")
        assert [one.event for one in first] == ["jobs", "outbox", "queues", "workers"]
        assert [one.data for one in first] == [{"topic": one.event} for one in first]
        await each_env.enqueue()
        second = await reader.until("queues")
        assert "jobs" in {one.event for one in second}  # that the store can be heard names every topic, too
        numbers = [int(one.id or 0) for one in (*first, *second)]
        assert numbers == sorted(set(numbers))


@pytest.fixture
def each_env(env: DriverEnv) -> DriverEnv:
    """Each driver in turn."""
    return env


async def test_only_what_was_asked_for_is_named(api: Api) -> None:
    async with following(api, "?topics=queues") as reader:
        assert [one.event for one in await reader.until("queues")] == ["queues"]
        await api.post()
        assert [one.event for one in await reader.until("queues")] == ["queues"]


async def test_what_rings_no_bell_is_named_now_and_then(memory: DriverEnv) -> None:
    topics = TopicStreams(memory.driver, hint_seconds=0.01)
    with topics.follow(frozenset({Topic.WORKERS}), caller="a") as stream:
        named = stream.named()
        assert [await anext(named), await anext(named)] == [[Topic.WORKERS], [Topic.WORKERS]]


async def test_what_happens_at_once_is_named_once() -> None:
    stream = TopicStream(frozenset(Topic), "a", hint_seconds=_NEVER)
    named = stream.named()
    await anext(named)
    for _ in range(100):
        stream.on_wake(Wake.FINISHED)
    assert await anext(named) == [Topic.JOBS, Topic.QUEUES]
    stream.on_wake(Wake.LOST)
    assert await anext(named) == sorted(Topic)


async def test_a_drain_ends_the_stream_and_says_so(api: Api) -> None:
    async with following(api) as reader:
        await reader.until("workers")
        api.services.end_waiting()
        rest = await reader.rest()
        assert [one.event for one in rest] == ["draining"]
    assert api.topics.count == 0


async def test_while_draining_a_stream_is_over_at_once(memory: DriverEnv) -> None:
    topics = TopicStreams(memory.driver)
    topics.stop()
    with topics.follow(frozenset(Topic), caller="a") as stream:
        assert [one async for one in stream.named()] == []


async def test_streams_have_bounds(memory: DriverEnv) -> None:
    topics = TopicStreams(memory.driver, most=2, most_each=1)
    with topics.follow(frozenset(Topic), caller="a"):
        with pytest.raises(RateLimited), topics.follow(frozenset(Topic), caller="a"):
            pass
        with topics.follow(frozenset(Topic), caller="b"), pytest.raises(RateLimited):
            topics.follow(frozenset(Topic), caller="c").__enter__()
    assert topics.count == 0


async def test_it_asks_for_the_scope_that_reads(locked: Api) -> None:
    order = KeyOrder(label="k", tenant="default", scopes=frozenset({Scope.JOBS_WRITE}))
    issued = await locked.services.keys.create(order, by=Acting(actor="ada"))
    async with locked.client_with({"Authorization": f"Bearer {issued.token}"}) as client:
        assert code_of(await client.get(PATH)) == (403, "FORBIDDEN")


async def test_a_topic_nobody_knows_is_refused(api: Api) -> None:
    async with asyncio.timeout(5):
        response = await api.client.get(f"{PATH}?topics=prices")
    assert code_of(response) == (422, "REQUEST_INVALID")
    assert response.json()["errors"][0]["pointer"] == "/topics/0"
