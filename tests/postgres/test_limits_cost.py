"""What limits cost: jobs without any nothing, in statements, WAL and pages; others a known number of trips."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.domain.job import WorkerId
from app.domain.queue import QueueChange
from app.drivers.postgres.enqueue_columns import plain_columns
from app.drivers.postgres.enqueue_statements import ENQUEUE, ENQUEUE_LIMITED, ENQUEUE_PLAIN
from tests.conformance.gated import ALL, keyed
from tests.postgres.meter import Meter, asks, buffers, metered, wal_position
from tests.postgres.pages import CLAIMS, SETTLES, administrator, open_pages, warm_meter
from tests.support.made import NAME, QUEUE, new_job

pytestmark = pytest.mark.postgres

JOBS = 1_000
BATCH = 100
_OURS = ("outlast.gate", "outlast.slot", "limit_key", "limit_rule", "limit_names")
# What has to differ: jobs of fair queues wait elsewhere, and no queue has to be asked whether it is.
_OTHERS = ("seq is null", "seq is not null", "q.fair")
_DISARM = "alter table outlast.ready disable trigger into_gate"


@pytest.fixture
async def warm(database_url: str) -> AsyncIterator[tuple[Meter, WorkerId]]:
    """A counted driver that has done everything once."""
    async with warm_meter(database_url) as made:
        yield made


@pytest.mark.parametrize(
    "sql", [*CLAIMS.values(), *SETTLES.values(), ENQUEUE, ENQUEUE_PLAIN], ids=[*CLAIMS, *SETTLES, "enqueue", "short"]
)
def test_no_hot_statement_knows_of_limits(sql: str) -> None:
    assert [word for word in _OURS if word in sql] == []


def test_the_statement_for_limited_jobs_is_the_whole_one_and_what_limits_add() -> None:
    assert len(ENQUEUE_LIMITED) > len(ENQUEUE)
    conditions = [
        line for line in ENQUEUE.splitlines() if "where" in line and not any(other in line for other in _OTHERS)
    ]
    assert all(line in ENQUEUE_LIMITED for line in conditions)


async def test_jobs_without_limits_write_not_a_byte_more(lone_url: str) -> None:
    """The same with the gate's trigger and without it."""
    async with metered(lone_url) as meter, administrator(lone_url) as admin:
        worker = await meter.register()

        async def cycle() -> int:
            await admin.execute("checkpoint")
            began = await wal_position(admin)
            await meter.enqueue(JOBS)
            while claimed := await meter.claim(worker, BATCH):
                await meter.finish(claimed)
            return await wal_position(admin) - began

        await cycle()
        await cycle()
        armed = await cycle()
        await admin.execute(_DISARM)
        disarmed = await cycle()
    # Where a row meets the end of a page moves some bytes from one cycle to the next.
    assert abs(armed - disarmed) <= JOBS, f"{armed} with it, {disarmed} without"


async def test_an_enqueue_touches_no_page_more(lone_url: str) -> None:
    async with open_pages(lone_url) as pages, administrator(lone_url) as admin:

        async def touched() -> tuple[int, int]:
            await admin.execute("vacuum outlast.ready")  # of what was taken back
            await admin.execute("vacuum outlast.job")
            columns: Any = plain_columns([new_job() for _ in range(BATCH)], {NAME: pages.name_id})
            return await buffers(pages.connection, ENQUEUE_PLAIN, tuple(columns))

        await touched()
        armed = await touched()
        await admin.execute(_DISARM)
        assert armed == await touched()


async def test_a_look_into_an_empty_gate_is_one_statement(warm: tuple[Meter, WorkerId]) -> None:
    meter, worker = warm
    async with meter.counting():
        assert (await meter.driver.admit(asks(worker, BATCH))).jobs == ()
    assert len(meter.verbs) == 1


async def test_a_batch_is_admitted_in_six_trips_and_its_slots_given_back_in_five(warm: tuple[Meter, WorkerId]) -> None:
    meter, worker = warm
    for counted in (False, True):
        await meter.driver.enqueue_many([new_job(limits=(ALL,)) for _ in range(BATCH)])
        async with meter.counting():
            jobs = (await meter.driver.admit(asks(worker, BATCH))).jobs
        assert len(jobs) == BATCH
        if counted:
            assert words(meter) == ["with", "begin", "select", "with", "with", "commit"]
        await meter.finish(jobs)
        async with meter.counting():
            assert await meter.driver.free_slots([job.token for job in jobs]) == BATCH
        if counted:
            assert len(meter.verbs) == 5


async def test_keys_that_nobody_has_used_are_made_by_one_statement_before(warm: tuple[Meter, WorkerId]) -> None:
    meter, worker, sent = *warm, list[str]()
    for turn in range(2):  # in the first the statements are prepared, and a job type gets its number
        limits = [(keyed(f"{turn}-{number}"),) for number in range(BATCH)]
        await meter.driver.enqueue_many([new_job(limits=limit) for limit in limits])
        async with meter.counting():
            jobs = (await meter.driver.admit(asks(worker, BATCH))).jobs
        sent = words(meter)
        assert len(jobs) == BATCH
        await meter.finish(jobs)
    assert sent == ["with", "insert", "begin", "select", "with", "with", "commit"]


async def test_a_key_that_was_forgotten_meanwhile_is_made_again(warm: tuple[Meter, WorkerId]) -> None:
    meter, worker, sent = *warm, list[str]()
    for forgotten in (False, True):
        await meter.driver.enqueue(new_job(limits=(ALL,)))
        if forgotten:
            async with meter.driver._db.raw() as conn:
                await conn.execute("delete from outlast.limit_key")
        async with meter.counting():
            jobs = (await meter.driver.admit(asks(worker, BATCH))).jobs
        sent = words(meter)
        assert len(jobs) == 1
        await meter.finish(jobs)
        await meter.driver.free_slots([job.token for job in jobs])
    made = ["with", "begin", "select", "select", "commit", "insert", "begin", "select", "with", "with", "commit"]
    assert sent == made


async def test_the_places_of_a_limited_queue_are_counted_with_the_keys(warm: tuple[Meter, WorkerId]) -> None:
    meter, worker, sent = *warm, list[str]()
    await meter.driver.set_queue(QUEUE, QueueChange(concurrency=5))
    for _ in range(2):
        await meter.driver.enqueue_many([new_job(limits=(ALL,)) for _ in range(9)])
        async with meter.counting():
            jobs = (await meter.driver.admit(asks(worker, 9))).jobs
        sent = words(meter)
        assert len(jobs) == 5
        await meter.finish(jobs)
        await meter.driver.free_slots([job.token for job in jobs])
    assert sent == ["with", "begin", "select", "select", "with", "with", "commit"]


def words(meter: Meter) -> list[str]:
    """Give the first word of each statement."""
    return [sql.split()[0].strip(";").lower() for sql in meter.verbs]
