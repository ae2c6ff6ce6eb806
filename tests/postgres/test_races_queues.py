"""Queues of which only so many jobs may run or wait: claims and enqueues at once, cut and killed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from app.domain.errors import OutlastError, QueueFull
from app.domain.job import ClaimedJob, NewJob, WorkerId
from app.domain.outcome import Completed, Interrupted, SettleAnswer, Settlement
from app.domain.queue import QueueChange
from app.domain.state import State
from app.drivers.postgres import claim_limited
from app.drivers.postgres.database import create_engine
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.protocol import ClaimRequest, QueueShare, Wake
from tests.conformance.ears import hearing
from tests.postgres.arena import Arena
from tests.postgres.pages import administrator
from tests.support.drivers import NAME, new_job, new_worker

pytestmark = pytest.mark.postgres

T = TypeVar("T")

MAIL = ("mail",)
THREE = QueueChange(concurrency=3)


async def fill(arena: Arena, count: int, queue: str = "mail") -> None:
    await arena.driver.enqueue_many([new_job(queue=queue) for _ in range(count)])


async def two_workers(arena: Arena) -> tuple[WorkerId, WorkerId]:
    return await arena.register(), await arena.register()


async def test_a_second_claim_counts_what_the_first_has_taken(arena: Arena) -> None:
    await arena.driver.set_queue("mail", THREE)
    await fill(arena, 5)
    one, other = await two_workers(arena)
    async with arena.holding() as first:
        assert len(await first.claim(one, queues=MAIL, room=2)) == 2
        second = await arena.start(lambda seat: seat.claim(other, queues=MAIL))
        await second.is_blocked_by(first)
        await first.commit()
    assert len(await second.result()) == 1


async def test_a_second_claim_takes_the_places_of_one_that_is_rolled_back(arena: Arena) -> None:
    await arena.driver.set_queue("mail", THREE)
    await fill(arena, 5)
    one, other = await two_workers(arena)
    async with arena.holding() as first:
        assert len(await first.claim(one, queues=MAIL)) == 3
        second = await arena.start(lambda seat: seat.claim(other, queues=MAIL))
        await second.is_blocked_by(first)
        await first.rollback()
    assert len(await second.result()) == 3


async def test_claims_of_other_queues_do_not_wait(arena: Arena) -> None:
    await arena.driver.set_queue("mail", THREE)
    await arena.driver.set_queue("news", THREE)
    for queue in ("mail", "news", "other"):
        await fill(arena, 3, queue)
    one, other = await two_workers(arena)
    async with arena.holding() as first:
        assert len(await first.claim(one, queues=MAIL, room=1)) == 1
        assert len(await arena.at_once(lambda seat: seat.claim(other, queues=("news",)))) == 3
        assert len(await arena.at_once(lambda seat: seat.claim(other, queues=("other",)))) == 3


async def test_a_claim_of_several_queues_leaves_one_that_somebody_keeps(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is frozen in mid-claim holds up its queue, and nobody's jobs of other queues."""
    monkeypatch.setattr(claim_limited, "PATIENCE", timedelta(milliseconds=100))
    await arena.driver.set_queue("mail", THREE)
    await fill(arena, 3)
    await fill(arena, 3, "other")
    one, other = await two_workers(arena)
    async with arena.holding() as frozen:
        assert len(await frozen.claim(one, queues=MAIL, room=1)) == 1
        claimed = await arena.claim(other, queues=("mail", "other"))
        assert [job.queue for job in claimed] == ["other"] * 3
        await frozen.rollback()
    assert len(await arena.claim(other, queues=("mail", "other"))) == 3


async def test_a_settle_does_not_wait_for_a_claim_that_counts(arena: Arena) -> None:
    await arena.driver.set_queue("mail", THREE)
    await fill(arena, 3)
    one, other = await two_workers(arena)
    (held,) = await arena.claim(one, queues=MAIL, room=1)
    async with arena.holding() as claimer:
        assert len(await claimer.claim(other, queues=MAIL, room=1)) == 1
        answer = await arena.at_once(lambda seat: seat.settle(held.token, Completed()))
        assert answer is SettleAnswer.SETTLED


async def test_who_lets_go_of_a_cancelled_job_wakes_those_that_wait_for_its_place(arena: Arena) -> None:
    await arena.driver.set_queue("mail", QueueChange(concurrency=1))
    await fill(arena, 2)
    (held,) = await arena.claim(await arena.register(), queues=MAIL)
    await arena.driver.cancel(held.token.job_id, reason="changed their mind")
    async with hearing(arena) as ears:
        assert await arena.settle(held.token, Completed()) is SettleAnswer.CANCELLED
        await ears.wait_for(Wake.READY)


# --- how many wait


async def test_a_second_enqueue_counts_what_the_first_has_stored(arena: Arena) -> None:
    await arena.driver.set_queue("mail", QueueChange(max_depth=2))
    await arena.enqueue(queue="mail")
    async with arena.holding() as first:
        await first.driver.enqueue_many([new_job(queue="mail")])
        second = await arena.start(lambda seat: seat.driver.enqueue_many([new_job(queue="mail")]))
        await second.is_blocked_by(first)
        await arena.at_once(lambda seat: seat.enqueue(queue="other"))
        await first.commit()
    with pytest.raises(QueueFull):
        await second.result()


async def test_a_second_enqueue_has_the_room_of_one_that_is_rolled_back(arena: Arena) -> None:
    await arena.driver.set_queue("mail", QueueChange(max_depth=1))
    async with arena.holding() as first:
        await first.driver.enqueue_many([new_job(queue="mail")])
        second = await arena.start(lambda seat: seat.enqueue(queue="mail"))
        await second.is_blocked_by(first)
        await first.rollback()
    await second.result()


async def test_claims_and_enqueues_of_one_queue_do_not_wait_for_each_other(arena: Arena) -> None:
    await arena.driver.set_queue("mail", QueueChange(concurrency=1, max_depth=5))
    await fill(arena, 1)
    worker = await arena.register()
    async with arena.holding() as claimer:
        assert len(await claimer.claim(worker, queues=MAIL)) == 1
        await arena.at_once(lambda seat: seat.enqueue(queue="mail"))
    async with arena.holding() as producer:
        await producer.enqueue(queue="mail")
        assert len(await arena.at_once(lambda seat: seat.claim(worker, queues=MAIL))) == 1


@pytest.mark.timeout(60)
async def test_thirty_two_producers_at_once_fill_a_queue_to_its_maximum_and_no_further(
    arena: Arena, database_url: str
) -> None:
    """Alone, by batches, with keys, delayed, over four drivers: exactly as many as there is room for."""
    most = 100
    await arena.driver.set_queue("mail", QueueChange(max_depth=most))
    drivers = [PostgresDriver(create_engine(database_url, pool_size=3), owns_engine=True) for _ in range(4)]
    for driver in drivers:
        await driver.open()

    async def produce(number: int) -> int:
        dice, stored = random.Random(number), 0
        for round_ in range(12):
            keyed: dict[str, Any] = {"key": f"{number}-{round_}"} if dice.random() < 0.3 else {}
            delayed: dict[str, Any] = {"delay": timedelta(hours=1)} if dice.random() < 0.3 else {}
            beside = [new_job(queue="mail") for _ in range(dice.randint(0, 2))]
            jobs = [new_job(queue="mail", **keyed, **delayed), *beside]
            stored += await _stored(drivers[number % 4], jobs)
        return stored

    try:
        counts = await asyncio.gather(*(produce(number) for number in range(32)))
    finally:
        for driver in drivers:
            await driver.close()
    (found,) = await arena.fetch(
        "select (select count(*) from outlast.ready) + (select count(*) from outlast.waiting) as depth"
    )
    assert sum(counts) == found["depth"]
    assert most - 2 <= found["depth"] <= most, "a batch of three may not fit into the last two places"


async def _stored(driver: PostgresDriver, jobs: list[NewJob]) -> int:
    try:
        if len(jobs) == 1:
            await driver.enqueue(jobs[0])
        else:
            await driver.enqueue_many(jobs)
    except QueueFull:
        return 0
    return len(jobs)


# --- everything at once

_CUT = """
select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'limited' order by random() limit 1"""


@pytest.mark.timeout(90)
async def test_however_workers_come_and_go_no_more_run_than_may(arena: Arena, database_url: str) -> None:
    """Eight workers claim, settle, let go and vanish while sessions are killed; every snapshot shows the limit."""
    most, total = 5, 300
    await arena.driver.set_queue("mail", QueueChange(concurrency=most))
    await fill(arena, total)
    await fill(arena, total // 3, "other")
    over = asyncio.Event()

    async def watch() -> int:
        peak = 0
        async with administrator(database_url) as watcher:
            while not over.is_set():
                running = await watcher.fetchval("select count(*) from outlast.running where queue = 'mail'")
                peak = max(peak, running)
        return peak

    async def strike() -> None:
        async with administrator(database_url) as striker:
            while not over.is_set():
                await striker.execute(_CUT)
                await asyncio.sleep(0.1)

    watching, striking = asyncio.create_task(watch()), asyncio.create_task(strike())
    try:
        async with asyncio.timeout(60):
            await asyncio.gather(*(_work(database_url, number) for number in range(8)))
    finally:
        over.set()
        await striking
    assert await watching == most, "the limit was reached, and never passed"
    (row,) = await arena.fetch("select count(*) as n from outlast.finished")
    assert row["n"] == total + total // 3


async def _work(url: str, number: int) -> None:
    """Claim and settle until nothing is left; now and then let go, or come back as another worker."""
    dice = random.Random(number)
    driver = PostgresDriver(create_engine(url, pool_size=2, application_name="limited"), owns_engine=True)
    await _insist(driver.open)
    worker = await _insist(lambda: driver.register_worker(new_worker()))
    held: list[ClaimedJob] = []
    try:
        while await _insist(lambda: _left(driver)):
            queues = dice.choice((("mail",), ("mail", "other")))
            try:
                held += await driver.claim(_asks(worker, queues, dice.randint(1, 4)))
                held = await _let_go(driver, held, dice)
                if dice.random() < 0.05:
                    await driver.surrender(worker)
                    worker, held = await driver.register_worker(new_worker()), []
            except OutlastError:
                held.clear()  # whatever was brought by a reply that was lost goes back, too
                await _insist(lambda at=worker: driver.reconcile(at, []))  # type: ignore[misc] # bound now
    finally:
        await driver.close()


async def _let_go(driver: PostgresDriver, held: list[ClaimedJob], dice: random.Random) -> list[ClaimedJob]:
    """Settle some of the claims, a fifth of them as interrupted; gives the others."""
    count = dice.randint(0, len(held))
    outcomes = [Completed() if dice.random() < 0.8 else Interrupted(cause="drain") for _ in range(count)]
    pairs = zip(held[:count], outcomes, strict=True)
    await driver.settle([Settlement(job.token, outcome) for job, outcome in pairs])
    return held[count:]


async def _left(driver: PostgresDriver) -> int:
    by_state = (await driver.stats()).by_state
    return by_state[State.READY] + by_state[State.RUNNING]


async def _insist(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call again and again until no session of it is killed."""
    while True:
        try:
            return await call()
        except OutlastError:
            await asyncio.sleep(0.01)


def _asks(worker: WorkerId, queues: Iterable[str], room: int) -> ClaimRequest:
    shares = tuple(QueueShare(queue=queue, room=room) for queue in queues)
    return ClaimRequest(worker_id=worker, shares=shares, names=frozenset({NAME}), room=room)
