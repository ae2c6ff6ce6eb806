"""The relay role: it publishes when woken, begins nothing after accept, waits for its pass, and outlives its store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest

from app.domain.errors import DriverUnavailable
from app.domain.job import JobId
from app.domain.outbox import OutboxId, Pass
from app.drivers.memory.driver import MemoryDriver
from app.drivers.outbox import OutboxStore
from app.lifecycle.drain import DrainNotice
from app.lifecycle.role import Phase
from app.observability.metrics import Metrics
from app.observability.probe import Probe
from app.observability.telemetry import Telemetry
from app.outbox.passes import DriverPasses, Passes, SharedPasses
from app.outbox.relay import Relay, RelayOptions
from tests.support.drivers import new_job
from tests.support.outbox import WAYS, new_relay

NEVER = timedelta(hours=1)


class Held:
    """An outbox whose verbs can be held, and told to fail; it notes what was called."""

    def __init__(self, inner: OutboxStore[Any]) -> None:
        self.inner = inner
        self.calls: list[str] = []
        self.errors: dict[str, list[Exception]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.reached: dict[str, asyncio.Event] = {}

    def hold(self, verb: str) -> asyncio.Event:
        """Hold the next calls of a verb; gives the event that is set when one is held."""
        self.gates[verb], self.reached[verb] = asyncio.Event(), asyncio.Event()
        return self.reached[verb]

    def let(self, verb: str) -> None:
        self.gates.pop(verb).set()

    def __getattr__(self, verb: str) -> Any:
        async def call(*args: object) -> object:
            self.calls.append(verb)
            gate = self.gates.get(verb)
            if gate is not None:
                self.reached[verb].set()
                await gate.wait()
            if self.errors.get(verb):
                raise self.errors[verb].pop(0)
            return await getattr(self.inner, verb)(*args)

        return call


class Post:
    """One relay over a memory driver, and its ear."""

    def __init__(self, way: str = "shared", **options: Any) -> None:
        self.driver = MemoryDriver()
        self.outbox = Held(self.driver.outbox)
        self.telemetry = Telemetry(metrics=Metrics())
        self.probe = Probe(self.telemetry)
        self.way = way
        self.lives = 0
        self.relay = Relay(
            outbox=self.outbox,
            new_passes=self._passes,
            driver=self.driver,
            telemetry=self.telemetry,
            roll=Random(7).random,
            options=RelayOptions(**{"poll": NEVER, "sweep": NEVER, **options}),
        )

    def _passes(self) -> Passes:
        self.lives += 1
        if self.way == "shared":
            return SharedPasses(self.outbox)
        return DriverPasses(self.outbox, self.driver, new_relay())

    def stage(self, count: int = 1) -> list[JobId]:
        jobs = [new_job() for _ in range(count)]
        with self.driver.outbox.transaction() as transaction:
            self.driver.outbox.stage_now(transaction, jobs)
        return [job.id for job in jobs]

    async def until(self, job_ids: list[JobId]) -> None:
        async with asyncio.timeout(10):
            while any([await self.driver.describe(job_id) is None for job_id in job_ids]):
                await asyncio.sleep(0.001)

    async def until_empty(self) -> None:
        async with asyncio.timeout(10):
            while (await self.driver.outbox.view()).oldest_at is not None:
                await asyncio.sleep(0.001)

    def value(self, metric: str, **labels: str) -> float | None:
        return self.telemetry.metrics.registry.get_sample_value(metric, labels)


@asynccontextmanager
async def relaying(way: str = "shared", **options: Any) -> AsyncIterator[Post]:
    post = Post(way, **options)
    await post.relay.start()
    try:
        yield post
    finally:
        await post.relay.stop()


def notice(seconds: float = 5.0) -> DrainNotice:
    return DrainNotice(cause="SIGTERM", started=time.monotonic(), seconds=seconds)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


async def test_a_commit_wakes_it(way: str) -> None:
    async with relaying(way) as post:
        for _ in range(3):
            await post.until(post.stage(2))
        assert post.value("outlast_outbox_rows_total", end="published") == 6


async def test_what_nobody_rang_for_is_found_by_polling(way: str) -> None:
    async with relaying(way, poll=timedelta(milliseconds=20)) as post:
        rows = post.driver.outbox
        with rows.transaction() as transaction:
            rows.stage_now(transaction, [job := new_job()])
            transaction.commit()
            post.driver._store.bell.take()
        await post.until([job.id])


async def test_a_backlog_is_published_without_pauses(way: str) -> None:
    post = Post(way, batch=10)
    jobs = post.stage(95)
    await post.relay.start()
    await post.until(jobs)
    await post.relay.stop()
    verb = "publish" if way == "shared" else "claim"
    assert post.outbox.calls.count(verb) >= 10


async def test_ten_cycles_are_ten_lives_and_each_publishes(way: str) -> None:
    post = Post(way)
    for _ in range(10):
        await post.relay.start()
        await post.until(post.stage())
        await asyncio.gather(post.relay.stop(), post.relay.stop())
        assert post.relay.phase is Phase.STOPPED
    assert post.lives == 10


async def test_after_accept_no_pass_begins_and_the_one_in_flight_is_waited_for(way: str) -> None:
    async with relaying(way) as post:
        begins, verb = ("publish", "publish") if way == "shared" else ("claim", "end")
        held = post.outbox.hold(verb)
        first = post.stage()
        await held.wait()
        begun = post.outbox.calls.count(begins)
        post.relay.drain(notice())
        idle = asyncio.ensure_future(post.relay.wait_idle())
        post.stage()
        await asyncio.sleep(0)
        assert not idle.done()
        post.outbox.let(verb)
        await idle
        await post.relay.stop()
        assert post.relay.abandoned == 0
        await post.until(first)
        assert post.outbox.calls.count(begins) == begun


async def test_a_look_in_flight_at_accept_is_followed_by_no_pass() -> None:
    post = Post()
    held = post.outbox.hold("recover")
    jobs = post.stage()
    await post.relay.start()
    await held.wait()
    post.relay.drain(notice())
    post.outbox.let("recover")
    await post.relay.stop()
    assert "publish" not in post.outbox.calls
    assert await post.driver.outbox.find(jobs[0]) is not None


async def test_a_pass_that_does_not_end_in_time_is_cut_and_its_rows_come_back(way: str) -> None:
    post = Post(way)
    await post.relay.start()
    verb = "publish" if way == "shared" else "end"
    held = post.outbox.hold(verb)
    jobs = post.stage()
    await held.wait()
    post.relay.drain(notice(seconds=0.2))
    await post.relay.stop()
    assert post.relay.abandoned == 1
    post.outbox.let(verb)
    view = await post.driver.outbox.view()
    assert (view.staged, view.claimed) == (1, 0)
    await post.relay.start()
    await post.until(jobs)
    await post.relay.stop()
    assert post.relay.abandoned == 0
    assert len(post.driver._store.envelopes) == 1


async def test_a_manual_stop_waits_for_the_pass_without_a_deadline() -> None:
    post = Post()
    await post.relay.start()
    held = post.outbox.hold("publish")
    jobs = post.stage()
    await held.wait()
    stopping = asyncio.ensure_future(post.relay.stop())
    await asyncio.sleep(0.05)
    assert not stopping.done()
    post.outbox.let("publish")
    await stopping
    await post.until(jobs)


@pytest.mark.parametrize("verb", ["publish", "recover", "view"])
async def test_a_store_that_is_away_is_waited_out(verb: str) -> None:
    post = Post()
    post.outbox.errors[verb] = [DriverUnavailable("away", fix="wait"), ValueError("a fault of ours")]
    jobs = post.stage()
    await post.relay.start()
    await post.probe.wait("outbox.pass_failed", count=2)
    await post.until(jobs)
    await post.relay.stop()


@pytest.mark.parametrize("verb", ["claim", "end"])
async def test_claims_of_a_pass_that_failed_are_handed_back_before_the_next(verb: str) -> None:
    post = Post("driver")
    post.outbox.errors[verb] = [DriverUnavailable("the reply was lost", fix="wait")]
    jobs = post.stage(3)
    await post.relay.start()
    await post.until_empty()
    await post.relay.stop()
    await post.until(jobs)
    assert "release" in post.outbox.calls


async def test_rows_the_driver_cannot_take_for_now_are_handed_back_and_the_others_end() -> None:
    post = Post("driver")
    await post.driver.enqueue(new_job(key="a", fingerprint=1))
    with post.driver.outbox.transaction() as transaction:  # a refused one, for which each is enqueued by itself
        post.driver.outbox.stage_now(transaction, [new_job(key="a", fingerprint=2)])
    jobs = post.stage(3)
    real = post.driver.enqueue
    refused: list[UUID] = []

    async def enqueue(job: Any) -> Any:
        if job.id == jobs[1] and not refused:
            refused.append(job.id)
            raise DriverUnavailable("away", fix="wait")
        return await real(job)

    post.driver.enqueue = enqueue  # type: ignore[method-assign] # one that fails once
    await post.relay.start()
    await post.until_empty()
    await post.relay.stop()
    await post.until(jobs)
    assert refused == [jobs[1]]
    assert (await post.driver.outbox.view()).quarantined == 1


async def test_quarantine_is_said_and_counted_without_the_text_of_the_error() -> None:
    post = Post()
    wrong = new_job("mail.send", payload="{")
    with post.driver.outbox.transaction() as transaction:
        post.driver.outbox.stage_now(transaction, [wrong])
    await post.relay.start()
    await post.probe.wait("outbox.quarantined", outbox_id=str(wrong.id), job="mail.send", code="JSON_INVALID")
    await post.relay.stop()
    assert post.value("outlast_outbox_rows_total", end="quarantined") == 1
    assert post.value("outlast_outbox_rows_total", end="published") is None


async def test_lag_is_a_metric_once_a_relay_has_looked() -> None:
    post = Post(sweep=timedelta(milliseconds=10), poll=timedelta(milliseconds=10))
    assert post.value("outlast_outbox_lag_seconds") is None
    held = post.outbox.hold("publish")
    post.stage()
    await post.relay.start()
    await held.wait()
    assert post.value("outlast_outbox_lag_seconds") is not None
    assert post.value("outlast_outbox_quarantined") == 0
    post.outbox.let("publish")
    await post.relay.stop()


async def test_rows_of_a_lost_relay_are_recovered_and_said() -> None:
    post = Post(sweep=timedelta(milliseconds=10), poll=timedelta(milliseconds=10))
    post.outbox.errors["recover"] = []
    recovered = iter([3])

    async def recover() -> int:
        return next(recovered, 0)

    post.outbox.recover = recover  # type: ignore[attr-defined] # one that finds three once
    await post.relay.start()
    await post.probe.wait("outbox.recovered", count=1)
    await post.relay.stop()


async def test_several_relays_publish_each_row_once(way: str) -> None:
    driver = MemoryDriver()
    posts = [Post(way, batch=7) for _ in range(4)]
    for post in posts:
        post.driver, post.outbox.inner = driver, driver.outbox
        post.relay._driver = driver
    jobs = [JobId(row) for row in map(OutboxId, posts[0].stage(200))]
    await asyncio.gather(*(post.relay.start() for post in posts))
    await posts[0].until(jobs)
    await asyncio.gather(*(post.relay.stop() for post in posts))
    counted = [post.value("outlast_outbox_rows_total", end="published") or 0 for post in posts]
    assert sum(counted) == 200


def test_a_pass_counts_the_rows_that_ended() -> None:
    assert Pass(published=2, deduped=1).rows == 3
