from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from app.control.waiting import ResultWaiters
from app.domain.errors import DriverUnavailable
from app.domain.job import JobId
from app.drivers.memory.driver import MemoryDriver
from app.drivers.protocol import Wake
from tests.http.api import Api, code_of, dead, waiting
from tests.support.drivers import NAME


async def test_a_request_waits_for_its_job_to_end(each_api: Api) -> None:
    api = each_api
    async with api.up(), asyncio.TaskGroup() as group:
        request = group.create_task(
            api.client.post("/v1/jobs", json={"name": NAME, "payload": {}}, headers={"Prefer": "wait=10"})
        )
        await waiting(api)
        await api.finish()
        response = await request
        assert (response.status_code, response.json()["state"]) == (200, "done")
        assert response.json()["deduped"] is False
        assert response.headers["preference-applied"] == "wait=10"


async def test_a_request_that_waited_for_nothing_is_accepted(api: Api) -> None:
    async with api.up():
        response = await api.client.post("/v1/jobs", json={"name": NAME, "payload": {}}, headers={"Prefer": "wait=0"})
        assert (response.status_code, response.json()["state"]) == (202, "ready")
        assert response.headers["location"] == response.json()["links"]["self"]
        assert response.headers["retry-after"] == "1"
        result = await api.client.get(response.json()["links"]["result"], headers={"Prefer": "wait=1"})
        assert (result.status_code, result.json()["state"]) == (202, "ready")
        assert result.headers["preference-applied"] == "wait=1"


async def test_many_waits_share_one_statement_and_one_listener(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    listeners: list[object] = []
    plain_ask, plain_listen = MemoryDriver.finished_among, MemoryDriver.listen

    async def ask(self: MemoryDriver, job_ids: Sequence[JobId]) -> frozenset[JobId]:
        asked.append(len(job_ids))
        return await plain_ask(self, job_ids)

    @asynccontextmanager
    async def listen(
        self: MemoryDriver, on_wake: Callable[[Wake], None], *, news: frozenset[Wake]
    ) -> AsyncIterator[None]:
        listeners.append(on_wake)
        async with plain_listen(self, on_wake, news=news):
            yield

    monkeypatch.setattr(MemoryDriver, "finished_among", ask)
    monkeypatch.setattr(MemoryDriver, "listen", listen)
    jobs = [await api.post() for _ in range(20)]
    async with api.up(), asyncio.TaskGroup() as group:
        requests = [
            group.create_task(api.client.get(job["links"]["result"], headers={"Prefer": "wait=10"}))
            for job in [*jobs, *jobs]
        ]
        await waiting(api, 40)
        asked.clear()
        worker = await api.env.register()
        for claimed in await api.env.claim(worker, room=20):
            await api.env.close_attempt(claimed.token, dead())
        for request in requests:
            assert code_of(await request) == (409, "JOB_FAILED")
    assert len(listeners) == 1
    assert asked
    assert max(asked) <= 20
    assert len(asked) < 10
    assert api.waiters.count == 0


async def test_a_drain_ends_every_wait(api: Api) -> None:
    job = await api.post()
    async with api.up(), asyncio.TaskGroup() as group:
        request = group.create_task(api.client.get(job["links"]["result"], headers={"Prefer": "wait=60"}))
        await waiting(api)
        api.waiters.stop()
        assert (await request).status_code == 202
        response = await api.client.get(job["links"]["result"], headers={"Prefer": "wait=60"})
        assert response.status_code == 202


async def test_waiting_goes_on_while_the_store_is_away(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = asyncio.Event()
    plain = MemoryDriver.finished_among

    async def ask(self: MemoryDriver, job_ids: Sequence[JobId]) -> frozenset[JobId]:
        if not failed.is_set():
            failed.set()
            raise DriverUnavailable("away", fix="wait")
        return await plain(self, job_ids)

    monkeypatch.setattr(MemoryDriver, "finished_among", ask)
    job = await api.post()
    async with api.up(), asyncio.TaskGroup() as group:
        request = group.create_task(api.client.get(job["links"]["result"], headers={"Prefer": "wait=10"}))
        await failed.wait()
        await api.finish()
        assert (await request).status_code == 200


async def test_a_lost_wake_up_is_made_up_for_by_polling(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def deaf(
        self: MemoryDriver, on_wake: Callable[[Wake], None], *, news: frozenset[Wake]
    ) -> AsyncIterator[None]:
        assert Wake.FINISHED in news
        on_wake(Wake.LOST)
        yield

    monkeypatch.setattr(MemoryDriver, "listen", deaf)
    job = await api.post()
    async with api.up(), asyncio.TaskGroup() as group:
        request = group.create_task(api.client.get(job["links"]["result"], headers={"Prefer": "wait=10"}))
        await waiting(api)
        await api.finish()
        assert (await request).status_code == 200


async def test_no_more_requests_wait_than_may(api: Api) -> None:
    waiters = ResultWaiters(api.env.driver, limit=1)
    async with asyncio.TaskGroup() as group:
        runner = group.create_task(waiters.run())
        first = group.create_task(waiters.finished(await api.env.enqueue(), 10))
        while waiters.count == 0:
            await asyncio.sleep(0)
        assert await waiters.finished(await api.env.enqueue(), 10) is False
        waiters.stop()
        assert await first is False
        await runner


async def test_a_waiting_request_that_is_cancelled_leaves_nothing_behind(api: Api) -> None:
    job = await api.post()
    async with api.up():
        request = asyncio.create_task(api.client.get(job["links"]["result"], headers={"Prefer": "wait=60"}))
        await waiting(api)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert api.waiters.count == 0
