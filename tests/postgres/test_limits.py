"""What the controls of queues cost: nothing where there are none, little where there are; and counts that are dear."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from app.domain.errors import QueueFull
from app.domain.job import WorkerId
from app.domain.queue import COUNT_KEPT, QueueChange
from app.drivers.postgres import enqueue_limited
from tests.postgres.arena import Arena
from tests.postgres.meter import Meter, asks, pile_running
from tests.postgres.pages import CLAIMS, Pages, administrator, open_pages, warm_meter
from tests.support.made import new_job

pytestmark = pytest.mark.postgres

BOTH = QueueChange(concurrency=5, max_depth=1000)


@pytest.fixture
async def warm(database_url: str) -> AsyncIterator[tuple[Meter, WorkerId]]:
    """A counted driver that has done everything once; another queue than that of its jobs is limited."""
    async with warm_meter(database_url) as (meter, worker):
        await meter.driver.set_queue("limited", BOTH)
        yield meter, worker


def words(meter: Meter) -> list[str]:
    """Give the first word of each statement."""
    return [sql.split()[0].strip(";").lower() for sql in meter.verbs]


# --- queues without controls, beside one that has them


async def test_other_queues_cost_the_statements_they_did(warm: tuple[Meter, WorkerId]) -> None:
    meter, worker = warm
    async with meter.counting():
        await meter.enqueue(10)
        await meter.driver.enqueue(new_job())
        await meter.driver.enqueue(new_job(key="k"))
        claimed = await meter.claim(worker, 5)
        claimed = await meter.finish_and_claim(claimed, worker, 5)
        await meter.finish(claimed)
    assert len(meter.verbs) == 6


async def test_a_claim_of_a_limited_queue_that_has_nothing_ready_takes_no_lock_beside_others(
    warm: tuple[Meter, WorkerId],
) -> None:
    meter, worker = warm
    await meter.enqueue(5)
    async with meter.counting():
        assert len(await meter.driver.claim(asks(worker, 5, "limited", "default"))) == 5
    assert len(meter.verbs) == 1


@pytest.mark.parametrize("verb", CLAIMS)
async def test_what_runs_is_counted_for_limited_queues_alone(lone_url: str, verb: str) -> None:
    """Twenty thousand claims that are held, and a limit on another queue: a claim of fifty touches the same pages."""
    async with open_pages(lone_url) as pages:
        before = await _pages_of(pages, verb)
        async with administrator(lone_url) as admin:
            await pile_running(admin, 20_000, worker=pages.worker)
        await pages.meter.driver.set_queue("limited", BOTH)
        await pages.tidy()
        # An index of more levels is a page more for each claim that is inserted or found.
        assert await _pages_of(pages, verb) <= before + 160


async def _pages_of(pages: Pages, verb: str) -> int:
    await pages.meter.enqueue(50)
    await pages.tidy()
    return await pages.of_claim(verb)


# --- queues with controls


async def test_a_claim_of_a_limited_queue_is_a_look_and_a_transaction(warm: tuple[Meter, WorkerId]) -> None:
    meter, worker = warm
    await meter.driver.enqueue_many([new_job(queue="limited") for _ in range(9)])
    async with meter.counting():
        assert len(await meter.driver.claim(asks(worker, 9, "limited"))) == 5
    assert words(meter) == ["with", "begin", "select", "with", "commit"]
    async with meter.counting():
        assert await meter.driver.claim(asks(worker, 9, "limited")) == ()
    assert words(meter) == ["with"], "one that is at its limit is not locked"


async def test_an_enqueue_into_a_limited_queue_is_a_transaction(warm: tuple[Meter, WorkerId]) -> None:
    meter, _ = warm
    await meter.driver.enqueue(new_job(queue="limited"))  # which finds out that it is limited
    async with meter.counting():
        await meter.driver.enqueue(new_job(queue="limited"))
    assert words(meter) == ["begin", "select", "select", "with", "commit"]


async def test_a_limit_that_has_gone_is_forgotten(warm: tuple[Meter, WorkerId]) -> None:
    meter, _ = warm
    await meter.driver.enqueue(new_job(queue="limited"))
    await meter.driver.set_queue("limited", QueueChange(max_depth=None))
    for _ in range(2):
        async with meter.counting():
            await meter.driver.enqueue(new_job(queue="limited"))
    assert words(meter) == ["with"]


# --- counts that are dear


async def test_what_a_dear_count_found_free_stands_for_a_second(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enqueues live on it, and never exceed it; what has left the queue since is seen with the next count."""
    monkeypatch.setattr(enqueue_limited, "MANY_COUNTED", 1)
    await arena.driver.set_queue("mail", QueueChange(max_depth=3))
    worker = await arena.register()
    await arena.enqueue(queue="mail")
    await arena.enqueue(queue="mail")
    assert await _kept(arena) == 1
    assert len(await arena.claim(worker, queues=("mail",))) == 2
    await arena.enqueue(queue="mail")
    with pytest.raises(QueueFull):
        await arena.enqueue(queue="mail")
    assert await _kept(arena) == 0
    await arena.advance(COUNT_KEPT)
    await arena.driver.enqueue_many([new_job(queue="mail") for _ in range(2)])
    assert await _kept(arena) == 0


async def test_a_new_maximum_is_counted_anew(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enqueue_limited, "MANY_COUNTED", 1)
    await arena.driver.set_queue("mail", QueueChange(max_depth=2))
    await arena.enqueue(queue="mail")
    await arena.enqueue(queue="mail")
    await arena.driver.set_queue("mail", QueueChange(max_depth=3))
    await arena.enqueue(queue="mail")
    with pytest.raises(QueueFull):
        await arena.enqueue(queue="mail")


async def test_a_deep_queue_is_counted_once_a_second(warm: tuple[Meter, WorkerId]) -> None:
    meter, _ = warm
    await meter.driver.set_queue("limited", QueueChange(max_depth=1_000_000))
    await meter.driver.enqueue_many([new_job(queue="limited") for _ in range(6_000)])
    await meter.driver.enqueue(new_job(queue="limited"))
    async with meter.counting():
        await meter.driver.enqueue(new_job(queue="limited"))
    assert words(meter) == ["begin", "select", "select", "with", "update", "commit"]


async def _kept(arena: Arena) -> int | None:
    (row,) = await arena.fetch("select free from outlast.queue where name = 'mail'")
    free: int | None = row["free"]
    return free
