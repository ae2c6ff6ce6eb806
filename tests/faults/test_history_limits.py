"""The history of slots finds what is wrong with it, and nothing wrong with a limit that is lowered or raised."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from app.domain.job import ClaimedJob, LimitKey, WorkerId
from app.domain.limit import DEFAULT_LIMIT, RATE, limit_hash
from app.domain.outcome import Completed, Settlement
from app.domain.snapshot import JobTypeDoc
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.faults.checkers_limits import RatedStart, Slot, longest_stuck, never_over_held, never_too_fast
from tests.faults.history import check, writes
from tests.faults.history_limits import check_limits
from tests.support.drivers import NAME, QUEUE, new_job, new_worker
from tests.support.store import Store

ALL, RATED = LimitKey(DEFAULT_LIMIT, ""), LimitKey(RATE, "")

# A slot that is taken beside all that limits are held by.
_TAKEN = """
insert into outlast.slot(hash, job_id, seq, worker, claim_no) select $1, job_id, 1000, 1, 1 from outlast.gate limit 1"""
_STARTED = """
with g as (delete from outlast.gate where job_id = (select job_id from outlast.gate limit 1) returning *)
insert into outlast.running(job_id, seq, worker, queue, rank, name_id, attempt, claim_no, crashes, interrupts)
select job_id, seq, 1, queue, rank, name_id, attempt + 1, claim_no + 1, crashes, interrupts from g"""


async def declare(store: Store, n: int, version: str, rate: tuple[int, timedelta] | None = None) -> None:
    policy: dict[str, Any] = {"limits": [{"name": DEFAULT_LIMIT, "n": n, "key": None}]}
    if rate is not None:
        policy["rate"] = {"n": rate[0], "per_ms": rate[1] // timedelta(milliseconds=1), "key": None}
    doc = JobTypeDoc(name=NAME, code_version=version, document=json.dumps({"policy": policy}))
    await store.driver.publish_job_types([doc])


async def enqueue(store: Store, count: int, limit: LimitKey = ALL) -> None:
    for _ in range(count):
        await store.driver.enqueue(new_job(limits=(limit,)))


async def admit(store: Store, worker: WorkerId) -> tuple[ClaimedJob, ...]:
    shares = (QueueShare(queue=QUEUE, room=10),)
    request = ClaimRequest(worker_id=worker, shares=shares, names=frozenset({NAME}), room=10)
    return (await store.driver.admit(request)).jobs


async def end(store: Store, jobs: tuple[ClaimedJob, ...]) -> None:
    await store.driver.settle([Settlement(job.token, Completed()) for job in jobs])
    await store.driver.free_slots([job.token for job in jobs])


@pytest.mark.postgres
async def test_a_slot_too_many_is_found(store: Store) -> None:
    await declare(store, 1, "1")
    await enqueue(store, 2)
    await admit(store, await store.driver.register_worker(new_worker()))
    await check(store, ())
    await store.fetch(_TAKEN, limit_hash(NAME, ALL))
    with pytest.raises(AssertionError, match=r"2 hold .*, 1 may"):
        await check(store, ())


@pytest.mark.postgres
async def test_a_slot_too_many_is_found_also_once_it_is_given_back(store: Store) -> None:
    await declare(store, 1, "1")
    await enqueue(store, 2)
    held = await admit(store, await store.driver.register_worker(new_worker()))
    await store.fetch(_TAKEN, limit_hash(NAME, ALL))
    await store.fetch("delete from outlast.slot where seq = 1000")
    await end(store, held)
    with pytest.raises(AssertionError, match=r"2 hold .*, 1 may"):
        await check(store, ())


@pytest.mark.postgres
async def test_a_number_that_is_lowered_takes_nothing_back_and_lets_nobody_start(store: Store) -> None:
    worker = await store.driver.register_worker(new_worker())
    await declare(store, 3, "1")
    await enqueue(store, 5)
    held = await admit(store, worker)
    await declare(store, 1, "2")
    await end(store, held[:1])
    assert (len(held), await admit(store, worker)) == (3, ())
    assert await check_limits(store, await writes(store)) == (3, 0)
    await store.fetch(_TAKEN, limit_hash(NAME, ALL))
    with pytest.raises(AssertionError, match=r"3 hold .*, 1 may"):
        await check(store, ())


@pytest.mark.postgres
async def test_a_number_that_is_raised_is_in_force_at_once(store: Store) -> None:
    worker = await store.driver.register_worker(new_worker())
    await declare(store, 1, "1")
    await enqueue(store, 5)
    await admit(store, worker)
    await store.driver.set_limit(NAME, DEFAULT_LIMIT, 4, by="ann")
    assert len(await admit(store, worker)) == 3
    await check(store, ())
    assert await check_limits(store, await writes(store)) == (4, 0)


@pytest.mark.postgres
async def test_a_start_too_many_is_found(store: Store) -> None:
    worker = await store.driver.register_worker(new_worker())
    await declare(store, 1, "1", rate=(2, timedelta(hours=1)))
    await enqueue(store, 4, RATED)
    assert len(await admit(store, worker)) == 2
    assert await check_limits(store, await writes(store)) == (0, 2)
    await store.fetch(_STARTED)
    with pytest.raises(AssertionError, match=r"3 of .* began within .* 2\.00 may"):
        await check_limits(store, await writes(store))


def _slots(*, taken: bool, claims: str, may: tuple[int | None, ...] = (1,)) -> list[Slot]:
    return [Slot(key="k", claim=claim, is_taken=taken, may=may) for claim in claims]


@pytest.mark.parametrize(
    ("slots", "what"),
    [
        (_slots(taken=True, claims="ab"), "2 hold k, 1 may"),
        (_slots(taken=True, claims="aa", may=(9,)), "took two slots"),
        (_slots(taken=False, claims="a"), "did not hold"),
    ],
)
def test_each_rule_of_slots_can_be_broken(slots: list[Slot], what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        never_over_held(slots)


def test_what_may_be_held_while_a_number_changes_is_the_larger_one() -> None:
    assert never_over_held(_slots(taken=True, claims="ab", may=(1, 2))) == 2
    assert never_over_held(_slots(taken=True, claims="abc", may=(1, None))) == 3


def _start(second: float) -> RatedStart:
    return RatedStart(key="k", rule=1, n=2, seconds=10.0, began=second, at=second + 0.01)


def test_a_bucket_that_fills_evenly_lets_no_more_start() -> None:
    assert never_too_fast(map(_start, [0, 0, 5, 10, 15])) == 4
    with pytest.raises(AssertionError, match="3 of k"):
        never_too_fast(map(_start, [0, 0, 4.9]))
    with pytest.raises(AssertionError, match="4 of k"):
        never_too_fast(map(_start, [0, 0, 5, 9]))


def test_how_long_nobody_new_had_a_slot_counts_from_the_strike_that_may_have_lost_its_holder() -> None:
    assert longest_stuck([10.0, 10.5, 13.0], struck=11.0) == 2.0
    assert longest_stuck([13.0, 10.0, 10.5], struck=9.0) == 2.5
    assert longest_stuck([10.0], struck=11.0) == 0.0
