"""How many requests a key may send, and what is never refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import httpx
import pytest

from app.domain.errors import RateLimited
from app.http.rate import RateLimiter
from tests.http.api import KEY, Api, code_of, job_type
from tests.support.drivers import NAME, DriverEnv


class Time:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    """A clock."""
    return Time()


@pytest.fixture
async def limited(memory: DriverEnv, time: Time) -> AsyncIterator[Api]:
    """A service that lets a key send two requests a second, four at once."""
    made = Api(memory, key=KEY, rate=RateLimiter(2, monotonic=time))
    await memory.driver.publish_job_types([job_type()])
    async with made.client:
        yield made


async def test_a_key_may_send_so_much_and_is_told_what_is_left(limited: Api, time: Time) -> None:
    answers = [await limited.client.get("/v1/queues") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert [answer.headers["ratelimit"] for answer in answers] == [
        '"key";r=3;t=1',
        '"key";r=2;t=1',
        '"key";r=1;t=2',
        '"key";r=0;t=2',
    ]
    assert answers[0].headers["ratelimit-policy"] == '"key";q=4;w=2'
    refused = await limited.client.get("/v1/queues")
    assert code_of(refused) == (429, "RATE_LIMITED")
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["ratelimit"] == '"key";r=0;t=2'
    time.now += 0.5
    assert (await limited.client.get("/v1/queues")).status_code == 200
    assert code_of(await limited.client.get("/v1/queues")) == (429, "RATE_LIMITED")


async def test_cancelling_is_never_refused(limited: Api) -> None:
    job = await limited.post()
    for _ in range(4):
        await limited.client.get("/v1/queues")
    assert code_of(await limited.client.post("/v1/jobs", json={})) == (429, "RATE_LIMITED")
    assert (await limited.client.post(f"/v1/jobs/{job['id']}/cancel")).status_code == 200
    assert (await limited.client.get("/readyz")).status_code == 200
    assert (await limited.client.get("/v1/drain")).status_code == 200


async def test_strangers_are_told_that_first(limited: Api) -> None:
    for _ in range(6):
        answer = await limited.client_with({"Authorization": "Bearer " + "x" * 32}).get("/v1/queues")
        assert code_of(answer) == (401, "UNAUTHENTICATED")
    assert (await limited.client.get("/v1/queues")).headers["ratelimit"] == '"key";r=3;t=1'


async def test_without_a_rate_nobody_is_counted(api: Api) -> None:
    answer = await api.client.get("/v1/queues")
    assert "ratelimit" not in answer.headers


def test_callers_do_not_share_a_bucket(time: Time) -> None:
    limiter = RateLimiter(1, burst=1, monotonic=time)
    limiter.take("a", "/v1/jobs")
    limiter.take("b", "/v1/jobs")
    with pytest.raises(RateLimited):
        limiter.take("a", "/v1/jobs")


def test_full_buckets_are_forgotten(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.http.rate._MOST_BUCKETS", 2)
    limiter = RateLimiter(1, burst=2, monotonic=time)
    for caller in ("a", "b"):
        limiter.take(caller, "/v1/jobs")
    time.now += 0.5
    limiter.take("b", "/v1/jobs")
    time.now += 0.5
    limiter.take("c", "/v1/jobs")
    assert set(limiter._buckets) == {"b", "c"}


def test_a_slow_rate_says_how_long_to_wait(time: Time) -> None:
    limiter = RateLimiter(0.1, burst=1, monotonic=time)
    limiter.take("a", "/v1/jobs")
    with pytest.raises(RateLimited) as refused:
        limiter.take("a", "/v1/jobs")
    headers = refused.value.details["http_headers"]
    assert isinstance(headers, dict)
    assert headers["Retry-After"] == "10"


@pytest.fixture
async def heavy(memory: DriverEnv, time: Time) -> AsyncIterator[Api]:
    """A service that lets a key send 100 bytes a second, a thousand at once."""
    made = Api(memory, key=KEY, rate=RateLimiter(None, bytes_per_second=100, monotonic=time))
    await memory.driver.publish_job_types([job_type()])
    async with made.client:
        yield made


async def test_a_key_may_send_so_many_bytes(heavy: Api, time: Time) -> None:
    """What is over is owed: the body that goes beyond is taken, the next waits for as long as that takes."""

    async def send(size: int) -> httpx.Response:
        body = json.dumps({"name": NAME, "payload": {"x": ""}})
        body = body.replace('""', f'"{"x" * (size - len(body))}"')
        assert len(body) == size
        return await heavy.client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})

    assert [(await send(700)).status_code for _ in range(2)] == [201, 201]
    refused = await send(60)
    assert code_of(refused) == (429, "RATE_LIMITED")
    assert refused.headers["retry-after"] == "4"
    assert (await heavy.client.get("/v1/queues")).status_code == 429
    never = "/v1/jobs/01a20d87-0a2c-7ae8-b8a0-c0396c8e24a7/cancel"
    assert (await heavy.client.post(never)).status_code == 404
    time.now += 4.0
    assert (await send(60)).status_code == 201
    assert "ratelimit" not in refused.headers


async def test_a_body_of_unknown_length_is_counted_as_it_comes(heavy: Api) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b'{"name": "'
        yield b"x" * 1_500
        yield b'"}'

    sent = await heavy.client.post("/v1/jobs", content=parts(), headers={"Content-Type": "application/json"})
    assert sent.status_code == 422
    assert code_of(await heavy.client.get("/v1/queues")) == (429, "RATE_LIMITED")
