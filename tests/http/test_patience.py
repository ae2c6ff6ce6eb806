"""Nobody is kept longer than a bound by a store that says nothing; what was asked to wait may wait on top of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest

from app.drivers.postgres.connect import CONNECT_TIMEOUT
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.hand import Taken
from app.http.patience import ANSWER_SECONDS
from tests.http.api import KEY, Api, code_of, job_type, waiting
from tests.support.drivers import NAME, PostgresEnv, start_time

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


@pytest.fixture
async def spend(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Awaitable[None]]:
    """Sleep so many seconds by the loop's clock, which is put on: it takes no time, however busy the machine is."""
    loop = asyncio.get_running_loop()
    real, ahead = loop.time, [0.0]
    monkeypatch.setattr(loop, "time", lambda: real() + ahead[0])

    def put_on(seconds: float) -> None:
        ahead[0] += seconds

    async def spending(seconds: float) -> None:
        loop.call_soon(put_on, seconds)  # once the sleep has begun
        await asyncio.sleep(seconds)

    return spending


async def test_a_store_that_says_nothing_is_answered_for(hasty: Api) -> None:
    for request in (
        hasty.client.get("/v1/jobs"),
        hasty.client.post("/v1/jobs", json={"name": NAME, "payload": {}, "idempotency_key": "k"}),
    ):
        answer = await request
        assert code_of(answer) == (503, "DRIVER_UNAVAILABLE")
        assert answer.headers["retry-after"]
        assert "repeat" in answer.json()["fix"]


async def test_what_a_request_waits_for_comes_out_of_one_budget(
    api: Api, spend: Callable[[float], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key takes more than half of it, and so does its question: each by itself would have been in time."""
    identity = await api.guard.authenticate("")
    done, begun = [], []

    def slow(name: str, answer: object) -> Callable[..., Awaitable[object]]:
        async def taking(*_: object, **__: object) -> object:
            begun.append(name)
            await spend(0.6 * ANSWER_SECONDS)
            done.append(name)
            return answer

        return taking

    monkeypatch.setattr(api.guard, "authenticate", slow("key", identity))
    monkeypatch.setattr(api.env.driver, "list", slow("list", ()))
    answer = await api.client.get("/v1/jobs")
    assert code_of(answer) == (503, "DRIVER_UNAVAILABLE")
    assert answer.headers["retry-after"] == "1"
    assert (begun, done) == (["key", "list"], ["key"])


async def test_a_key_that_cannot_be_looked_up_is_answered_for(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.http.patience.ANSWER_SECONDS", BOUND)
    monkeypatch.setattr(api.guard, "authenticate", _never)
    assert code_of(await api.client.get("/v1/jobs")) == (503, "DRIVER_UNAVAILABLE")


def test_nobody_is_kept_longer_than_a_connection_is_waited_for() -> None:
    assert timedelta(seconds=ANSWER_SECONDS) == CONNECT_TIMEOUT


async def test_a_body_that_comes_in_parts_is_not_read_for_ever(hasty: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """What each part may take comes out of one bound, too."""
    monkeypatch.setattr("app.http.patience.READ_SECONDS", BOUND)

    async def drop_by_drop() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" "
            await asyncio.sleep(BOUND / 2)

    headers = {"content-type": "application/json"}
    answer = await hasty.client.post("/v1/jobs", content=drop_by_drop(), headers=headers)
    assert code_of(answer) == (503, "DRIVER_UNAVAILABLE")


async def test_a_body_that_is_on_its_way_is_not_held_against_its_store(
    api: Api, spend: Callable[[float], Awaitable[None]]
) -> None:
    """The bound begins once the body is there; until then it has its own."""

    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"name": "no.such", '
        await spend(1.5 * ANSWER_SECONDS)
        yield b'"payload": {}}'

    headers = {"content-type": "application/json"}
    answer = await api.client.post("/v1/jobs", content=slowly(), headers=headers)
    assert code_of(answer) == (404, "JOB_UNKNOWN")


async def test_what_was_asked_to_wait_waits(api: Api, spend: Callable[[float], Awaitable[None]]) -> None:
    async with api.up():
        job = await api.post()
        result = asyncio.create_task(api.client.get(job["links"]["result"], headers={"prefer": "wait=20"}))
        await waiting(api)
        await spend(1.5 * ANSWER_SECONDS)
        await api.finish()
        assert (await result).status_code == 200


@pytest.mark.postgres
async def test_a_pool_that_is_in_use_is_waited_for_once(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the look at the key; nothing else is begun behind it, and the budget is over before the pool's own time."""
    engine = create_engine(database_url, pool_size=1)
    driver = PostgresDriver(engine, owns_engine=True)
    await driver.open()
    try:
        locked = Api(PostgresEnv(driver, engine, start_time()), key=KEY)
        await driver.publish_job_types([job_type()])
        issued = await locked.client.post("/v1/api-keys", json={"label": "ci", "scopes": ["jobs:read"]})
        fresh = Api(locked.env, key=KEY).client_with({"Authorization": f"Bearer {issued.json()['token']}"})
        take, waits = driver._db._hand.take, []

        async def counted() -> Taken:
            waits.append(driver._db.pool)
            return await take()

        monkeypatch.setattr("app.http.patience.ANSWER_SECONDS", 0.5)
        monkeypatch.setattr(driver._db._hand, "take", counted)
        async with driver._db.raw():
            waits.clear()
            answer = await fresh.get("/v1/jobs")
            assert code_of(answer) == (503, "DRIVER_UNAVAILABLE")
            assert answer.headers["retry-after"] == "1"
            assert [pool and (pool.size, pool.busy) for pool in waits] == [(1, 1)]
        monkeypatch.undo()
        assert (await fresh.get("/v1/jobs")).status_code == 200
    finally:
        await driver.close()
