"""Following jobs live, on a real server: what is sent, in which order, resumed, bounded, and ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest

from app.control.streams import JobStreams
from app.domain.errors import DriverUnavailable, RateLimited
from app.domain.job import JobId
from app.domain.outcome import Completed, Retried
from app.domain.snapshot import JobView
from app.drivers.memory.driver import MemoryDriver
from app.drivers.protocol import Wake
from app.http.role import ApiRole
from app.http.run_answers import StreamedEvents
from app.http.server import HttpServer
from tests.http.api import KEY, Api, code_of, failure
from tests.http.runs import approval, record, say, step, suspend
from tests.support.sse import Reader, Sent, stream_of

pytestmark = pytest.mark.timeout(40)


@asynccontextmanager
async def following(api: Api, job: dict[str, Any], *, last_id: str | None = None) -> AsyncIterator[Reader]:
    """Follow a job over a socket."""
    async with (
        api.served() as (host, port),
        client_of(host, port) as client,
        stream_of(client, job["links"]["events"], last_id=last_id) as reader,
    ):
        yield reader


def client_of(host: str, port: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False, timeout=20)


def names(sent: list[Sent]) -> list[str]:
    return [one.event for one in sent]


def numbers(sent: list[Sent]) -> list[int]:
    return [int(one.id) for one in sent if one.id is not None]


async def test_a_job_is_followed_from_its_beginning_to_its_end(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    async with following(api, job) as reader:
        assert reader.response.headers["content-type"].startswith("text/event-stream")
        assert reader.response.headers["x-accel-buffering"] == "no"
        assert "no-store" in reader.response.headers["cache-control"]
        sent = await reader.until("state")
        assert reader.retry == 2000
        assert (sent[-1].data["state"], "payload" in sent[-1].data) == ("ready", False)
        claimed = await api.claim()
        sent += await reader.until("state")
        assert sent[-1].data["state"] == "running"
        await record(api, claimed, step("load", value='{"n":\n 1.5e300}'))
        sent += await reader.until("step")
        assert (sent[-1].data["name"], sent[-1].data["value"]) == ("load", {"n": 1.5e300})
        await say(api, claimed, "loaded", progress=(0.5, "half"))
        sent += await reader.until("progress")
        await api.env.close_attempt(claimed.token, Completed(result="1"))
        sent += await reader.rest()
    assert names(sent) == ["state", "state", "step", "log", "progress", "attempt", "state", "end"]
    assert [one.data["message"] for one in sent if one.event in ("log", "progress")] == ["loaded", "half"]
    assert (sent[-3].data["outcome"], sent[-2].data["state"]) == ("completed", "done")
    assert sent[-1].data == {"id": job["id"], "state": "done"}
    assert numbers(sent) == sorted(set(numbers(sent)))
    assert len(numbers(sent)) == len(sent)
    for one in sent:
        StreamedEvents.model_validate({one.event: one.data})


async def test_a_job_that_has_ended_is_told_whole_and_at_once(api: Api) -> None:
    job = await api.post()
    claimed = await api.claim()
    await record(api, claimed, step("load"), step("charge", 1))
    await api.env.close_attempt(claimed.token, Retried(error=failure(), delay=timedelta()))
    await api.env.driver.promote()
    await api.finish()
    async with following(api, job) as reader:
        sent = await reader.rest()
    assert names(sent) == ["state", "step", "step", "attempt", "attempt", "end"]
    assert [one.data["outcome"] for one in sent if one.event == "attempt"] == ["retried", "completed"]


async def test_a_stream_is_resumed_where_it_was_left(each_api: Api) -> None:
    api = each_api
    job = await api.post()
    claimed = await api.claim()
    await record(api, claimed, step("load"))
    await say(api, claimed, "one")
    async with following(api, job) as reader:
        first = await reader.until("log")
    await say(api, claimed, "two")
    await record(api, claimed, step("charge", 1))
    await suspend(api, claimed, approval(2))
    async with following(api, job, last_id=first[-1].id) as reader:
        sent = await reader.until("step")
        assert names(sent) == ["state", "log", "step"]
        assert sent[0].data["state"] == "suspended"
        assert sent[0].data["waiting_on"]["event"] == "order.approved"
        assert [sent[1].data["message"], sent[2].data["name"]] == ["two", "charge"]
        assert (await api.client.post("/v1/events", json={"name": "order.approved", "key": "7"})).status_code == 202
        sent += await reader.until("state")
        assert (sent[-2].data["name"], sent[-1].data["state"]) == ("approval", "ready")
    assert numbers([*first, *sent]) == sorted(set(numbers([*first, *sent])))


@pytest.mark.parametrize("last_id", ["", "nonsense", "-1", "9" * 60, "\u0661"])
async def test_an_id_that_was_not_given_out_begins_anew(api: Api, last_id: str) -> None:
    job = await api.post()
    await record(api, await api.claim(), step("load"))
    async with api.served() as (host, port), client_of(host, port) as client:
        headers = {"Last-Event-ID": last_id.encode()}
        async with client.stream("GET", job["links"]["events"], headers=headers) as response:  # type: ignore[arg-type] # bytes are taken
            assert names(await Reader(response).until("step")) == ["state", "step"]


async def test_a_quiet_stream_is_kept_alive(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.http.routers.stream.KEEP_ALIVE_SECONDS", 0.05)
    job = await api.post()
    async with following(api, job) as reader:
        sent = await reader.until("")
        assert names(sent) == ["state", ""]
        assert sent[-1].data == "keep-alive"


async def test_a_job_that_is_deleted_ends_its_stream(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await api.post()
    async with following(api, job) as reader:
        await reader.until("state")

        async def gone(_self: MemoryDriver, _job_id: JobId, *, tenant: str | None = None) -> JobView | None:
            return None

        monkeypatch.setattr(MemoryDriver, "describe", gone)
        (last,) = await reader.rest()
    assert (last.event, last.data) == ("end", {"id": job["id"], "state": None})


async def test_a_drain_ends_every_stream_and_new_ones_at_once(api: Api) -> None:
    job = await api.post()
    server = HttpServer(api.app, host="127.0.0.1", port=0, graceful_seconds=5)
    role = ApiRole(server, api.services, count=api.env.driver.stats)
    await role.start()
    async with client_of("127.0.0.1", role.port) as client, stream_of(client, job["links"]["events"]) as reader:
        await reader.until("state")
        api.services.end_waiting()
        (last,) = await asyncio.wait_for(reader.rest(), 1)
        assert (last.event, last.id) == ("draining", None)
        assert api.streams.count == 0
        async with stream_of(client, job["links"]["events"], last_id="7") as late:
            assert names(await late.rest()) == ["draining"], "a browser gives up at anything but 200"
            assert late.response.headers["connection"] == "close", "it is to find another process"
        assert (await client.get(job["links"]["self"])).status_code == 200
    await asyncio.wait_for(role.stop(), 2)


async def test_a_reader_that_goes_leaves_nothing_behind(api: Api) -> None:
    job = await api.post()
    async with api.served() as (host, port):
        async with client_of(host, port) as client, stream_of(client, job["links"]["events"]) as reader:
            await reader.until("state")
            assert api.streams.count == 1
        await _until(lambda: api.streams.count == 0)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_streams_are_bounded_in_all_and_for_each_caller(api: Api) -> None:
    streams = JobStreams(api.env.driver, most=3, most_each=2)
    job_id = await api.env.enqueue()
    with streams.follow(job_id, caller="a"), streams.follow(job_id, caller="a"):
        with pytest.raises(RateLimited, match="a has 2 streams open"), streams.follow(job_id, caller="a"):
            pass
        with (
            streams.follow(job_id, caller="b"),
            pytest.raises(RateLimited, match="3 streams are open"),
            streams.follow(job_id, caller="c"),
        ):
            pass
    assert streams.count == 0


async def test_too_many_streams_are_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.streams, "_most_each", 1)
    job = await api.post()
    async with (
        api.served() as (host, port),
        client_of(host, port) as client,
        stream_of(client, job["links"]["events"]) as reader,
    ):
        await reader.until("state")
        refused = await client.get(job["links"]["events"])
        assert code_of(refused) == (429, "RATE_LIMITED")
        assert refused.headers["retry-after"] == "1"


async def test_many_followers_of_a_job_cost_one_listener_and_one_look(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[JobId] = []
    listeners: list[object] = []
    plain_describe, plain_listen = MemoryDriver.describe, MemoryDriver.listen

    async def describe(self: MemoryDriver, job_id: JobId, *, tenant: str | None = None) -> JobView | None:
        looks.append(job_id)
        return await plain_describe(self, job_id, tenant=tenant)

    @asynccontextmanager
    async def listen(
        self: MemoryDriver, on_wake: Callable[[Wake], None], *, news: frozenset[Wake]
    ) -> AsyncIterator[None]:
        listeners.append(on_wake)
        async with plain_listen(self, on_wake, news=news):
            yield

    monkeypatch.setattr(MemoryDriver, "listen", listen)
    job = await api.post()
    async with api.served() as (host, port), client_of(host, port) as client:
        readers = [stream_of(client, job["links"]["events"]) for _ in range(10)]
        opened = [await reader.__aenter__() for reader in readers]
        for reader in opened:
            await reader.until("state")
        monkeypatch.setattr(MemoryDriver, "describe", describe)
        await api.finish()
        for reader in opened:
            assert names(await reader.rest())[-1] == "end"
        for each in readers:
            await each.__aexit__(None, None, None)
    assert len(listeners) == 1
    assert 1 <= len(looks) < 5


async def test_following_goes_on_while_the_store_is_away(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = asyncio.Event()
    plain = MemoryDriver.describe

    async def describe(self: MemoryDriver, job_id: JobId, *, tenant: str | None = None) -> JobView | None:
        if not failed.is_set():
            failed.set()
            raise DriverUnavailable("away", fix="wait")
        return await plain(self, job_id, tenant=tenant)

    job = await api.post()
    async with following(api, job) as reader:
        await reader.until("state")
        monkeypatch.setattr(MemoryDriver, "describe", describe)
        await failed.wait()
        await api.finish()
        assert names(await reader.rest())[-1] == "end"


async def test_a_stream_of_another_tenants_job_is_not_found(locked: Api) -> None:
    other = await locked.env.enqueue(tenant="north")
    async with locked.served() as (host, port), client_of(host, port) as client:
        response = await client.get(f"/v1/jobs/{other}/events", headers={"Authorization": f"Bearer {KEY}"})
        assert code_of(response) == (404, "JOB_NOT_FOUND")
        assert code_of(await client.get(f"/v1/jobs/{other}/events")) == (401, "UNAUTHENTICATED")


async def test_a_reader_that_takes_nothing_is_let_go(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.sending._SEND_SECONDS", 0.2)
    job = await api.post()
    large = f'"{"x" * 1_000_000}"'
    await record(api, await api.claim(), *(step(f"step {number}", number, value=large) for number in range(30)))
    async with api.served() as (host, port):
        with socket.create_connection((host, port), timeout=5) as client:
            client.sendall(f"GET {job['links']['events']} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            await _until(lambda: api.streams.count == 1)
            await _until(lambda: api.streams.count == 0)
        assert "request.failed" not in api.probe.names()


async def test_nobody_who_follows_costs_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[JobId] = []

    async def describe(self: MemoryDriver, job_id: JobId, *, tenant: str | None = None) -> JobView | None:
        looks.append(job_id)
        return None

    monkeypatch.setattr(MemoryDriver, "describe", describe)
    streams = JobStreams(api.env.driver, poll_seconds=0.001)
    async with asyncio.TaskGroup() as group:
        runner = group.create_task(streams.run())
        streams.on_wake(Wake.READY)
        await asyncio.sleep(0.05)
        assert looks == []
        with streams.follow(await api.env.enqueue(), caller="a"):
            await _until(lambda: looks != [])
        streams.stop()
        await runner
