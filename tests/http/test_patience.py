"""Nobody is kept longer than a bound by a store that says nothing; what was asked to wait may wait on top of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.http.api import Api, code_of, waiting
from tests.support.drivers import NAME

BOUND = 0.05


async def _never(*_: object, **__: object) -> None:
    await asyncio.Event().wait()


@pytest.fixture
def hasty(api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    """The service, with a bound that a test can wait for, over a store in which what is listed never answers."""
    monkeypatch.setattr("app.http.patience.ANSWER_SECONDS", BOUND)
    monkeypatch.setattr(api.env.driver, "list", _never)
    monkeypatch.setattr(api.env.driver, "enqueue", _never)
    return api


async def test_a_store_that_says_nothing_is_answered_for(hasty: Api) -> None:
    for request in (
        hasty.client.get("/v1/jobs"),
        hasty.client.post("/v1/jobs", json={"name": NAME, "payload": {}, "idempotency_key": "k"}),
    ):
        answer = await request
        assert code_of(answer) == (503, "DRIVER_UNAVAILABLE")
        assert answer.headers["retry-after"]
        assert "repeat" in answer.json()["fix"]


async def test_a_body_that_is_on_its_way_is_not_held_against_its_store(hasty: Api) -> None:
    """The bound begins once the body is there; until then it has its own."""

    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"name": "no.such", '
        await asyncio.sleep(4 * BOUND)
        yield b'"payload": {}}'

    headers = {"content-type": "application/json"}
    answer = await hasty.client.post("/v1/jobs", content=slowly(), headers=headers)
    assert code_of(answer) == (404, "JOB_UNKNOWN")


async def test_what_was_asked_to_wait_waits(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.http.patience.ANSWER_SECONDS", 0.3)
    async with api.up():
        job = await api.post()
        result = asyncio.create_task(api.client.get(job["links"]["result"], headers={"prefer": "wait=20"}))
        await waiting(api)
        await asyncio.sleep(0.5)
        await api.finish()
        assert (await result).status_code == 200
