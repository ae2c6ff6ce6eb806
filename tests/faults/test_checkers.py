"""The rules that every fault test is held to notice what they are for: each planted fault is found."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from app.domain.job import JobId
from app.domain.outcome import Completed, Settlement
from app.domain.schedule import Declaration, Overlap, Plan, Planned
from app.domain.state import State
from app.drivers.protocol import ClaimRequest, PurgeQuery, QueueShare
from app.drivers.schedules import ScheduleStore, schedules_of
from tests.faults.history import audit, check, writes
from tests.support.made import NAME, QUEUE, new_job, new_worker
from tests.support.store import Store, store_on

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(60)]

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    """An audited database that may be left as nothing of ours leaves one."""
    async with store_on(database_url) as opened:
        await audit(opened)
        yield opened


async def _completed(store: Store, job_id: JobId) -> None:
    worker = await store.driver.register_worker(new_worker())
    share = QueueShare(queue=QUEUE, room=10)
    asked = ClaimRequest(worker_id=worker, shares=(share,), names=frozenset({NAME}), room=10)
    claimed = await store.driver.claim(asked)
    assert [job.token.job_id for job in claimed] == [job_id]
    await store.driver.settle([Settlement(claimed[0].token, Completed(), is_keyed=claimed[0].key is not None)])


# --- keys and ids


async def test_a_key_that_goes_from_job_to_job_is_no_fault(store: Store) -> None:
    for number in range(3):
        answer = await store.driver.enqueue(new_job(key="k"))
        assert (await store.driver.enqueue(new_job(key="k"))).id == answer.id
        await (_completed(store, answer.id) if number % 2 else store.driver.cancel(answer.id, reason="tests"))
    last = await store.driver.enqueue(new_job(key="k"))
    await store.driver.enqueue(new_job(key="k", tenant="another"))
    await check(store, (), acked=[last.id])


async def test_two_live_jobs_of_a_key_are_found_though_one_has_ended_since(store: Store) -> None:
    first = await store.driver.enqueue(new_job(key="k"))
    await store.fetch("delete from outlast.live_key")
    await store.driver.enqueue(new_job(key="k"))
    await store.driver.cancel(first.id, reason="tests")
    with pytest.raises(AssertionError, match="is held by"):
        await check(store, ())


async def test_two_live_jobs_of_a_key_are_found_though_both_have_been_purged_since(store: Store) -> None:
    for _ in range(2):
        await store.driver.enqueue(new_job(key="k"))
        await store.fetch("delete from outlast.live_key")
    for row in await store.fetch("select id from outlast.job"):
        await store.driver.cancel(row["id"], reason="tests")
    assert await store.driver.purge(PurgeQuery(state=State.CANCELLED, older_than=timedelta())) == 2
    with pytest.raises(AssertionError, match="is held by"):
        await check(store, ())


async def test_a_live_job_that_does_not_hold_its_key_is_found(store: Store) -> None:
    await store.driver.enqueue(new_job(key="k"))
    await store.fetch("delete from outlast.live_key")
    with pytest.raises(AssertionError, match="whose keys are free"):
        await check(store, ())


async def test_an_id_that_comes_again_after_a_purge_is_found(store: Store) -> None:
    job = new_job()
    await store.driver.enqueue(job)
    await _completed(store, job.id)
    assert await store.driver.purge(PurgeQuery(state=State.DONE, older_than=timedelta())) == 1
    await check(store, ())
    await store.driver.enqueue(job)
    with pytest.raises(AssertionError, match="made more than once"):
        await check(store, ())


# --- schedules


class Rule:
    """A schedule of every other minute, decided by hand."""

    def __init__(self, store: ScheduleStore) -> None:
        self.store = store
        self.declaration = Declaration(
            name="ticks", code_version="1", cron="*/2 * * * *", tz="Europe/London", document='{"catch_up": "latest"}'
        )

    async def decide(self, minutes: int = 6, *, without: int = 0, fire: int = 1) -> None:
        """Decide so many minutes from the watermark on: the newest fire."""
        await self.store.declare([self.declaration])
        standing = (await self.store.standings(["ticks"])).by_name["ticks"]
        begin = standing.watermark.replace(second=0, microsecond=0)
        due = [at for number in range(minutes + 1) if (at := begin + number * MINUTE) > standing.watermark]
        due = [at for at in due if at.minute % 2 == 0]
        planned = [
            Planned(at=at, why="catch_up") if at in due[:-fire] else Planned(at=at, job=new_job("ticks.note"))
            for at in due
        ]
        await self.store.decide(
            Plan(
                name="ticks",
                digest=self.declaration.digest,
                until=due[-1],
                planned=tuple(planned[without:]),
                overlap=Overlap.ALLOW,
            )
        )


@pytest.fixture
def rule(store: Store) -> Rule:
    found = schedules_of(store.driver)
    assert found is not None
    return Rule(found)


async def test_a_schedule_that_is_decided_changed_paused_resumed_and_fired_by_hand_is_no_fault(
    store: Store, rule: Rule
) -> None:
    await rule.decide()
    await rule.store.fire("ticks", new_job("ticks.note"), by="ada")
    await rule.store.pause("ticks", by="ada")
    await store.fetch("update outlast.schedule set watermark = watermark - interval '1 day'")
    await rule.store.resume("ticks")
    await rule.store.declare([Declaration(name="ticks", code_version="2", cron="0 0 1 1 *", tz="UTC", document="{}")])
    await check(store, ())
    kinds = {(write.place, write.op) for write in await writes(store)}
    assert {("schedule", "UPDATE"), ("occurrence", "INSERT")} <= kinds


async def test_a_missing_occurrence_is_found(store: Store, rule: Rule) -> None:
    await rule.decide(without=1)
    with pytest.raises(AssertionError, match="missing 20"):
        await check(store, ())


async def test_an_occurrence_too_many_is_found(store: Store, rule: Rule) -> None:
    await rule.decide()
    await store.fetch(
        "insert into outlast.occurrence(schedule, at, outcome) select schedule, at + interval '1 minute', 1"
        " from outlast.occurrence limit 1"
    )
    with pytest.raises(AssertionError, match="extra 20"):
        await check(store, ())


async def test_an_occurrence_decided_twice_is_found_though_one_row_is_gone(store: Store, rule: Rule) -> None:
    await rule.decide()
    await store.fetch("create table public.kept as select * from outlast.occurrence")
    await store.fetch("delete from outlast.occurrence")
    await store.fetch("insert into outlast.occurrence select * from public.kept")
    with pytest.raises(AssertionError, match="decided twice"):
        await check(store, ())


async def test_an_occurrence_that_fired_for_all_its_age_is_found(store: Store, rule: Rule) -> None:
    await rule.decide(fire=2)
    with pytest.raises(AssertionError, match="may fire 1 of"):
        await check(store, ())
