"""Two code versions with different numbers, and a rate, under kills, freezes, cancels and drains of their workers."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from app.domain.job import JobId
from app.domain.state import State
from tests.faults.history import check, writes
from tests.faults.history_limits import check_limits
from tests.support.jobs_limits import MANY
from tests.support.processes import DRAIN, LEASE, SLACK, SWEEP, Fleet, Service, eventually, report
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(180)]

OLD, NEW = ("1", "3"), ("2", "1")
FAULTS = ("kill", "pause", "drain")
IN_TIME = LEASE + SWEEP + DRAIN + 2 * SLACK


def _start(fleet: Fleet, version: str, n: str) -> Service:
    return fleet.worker("--concurrency", "4", OUTLAST_CODE_VERSION=version, **{MANY: n})


async def _strike(fault: str, victim: Service) -> bool:
    """Do something to a worker; says whether it is gone."""
    match fault:
        case "kill":
            victim.kill()
        case "pause":
            victim.stop()
            victim.resume()
        case _:
            victim.terminate()
            await victim.gone(DRAIN + SLACK)
    return fault != "pause"


async def _in_force(store: Store) -> int | None:
    (limit,) = await store.driver.stored_limits("limits.many")
    return limit.n


async def test_a_fleet_of_two_versions_keeps_to_the_newer_ones_number(
    fleet: Fleet, store: Store, dice: random.Random
) -> None:
    old = await _start(fleet, *OLD).ready()
    done = [await store.enqueue("limits.many") for _ in range(6)]
    await store.all_until(done)
    assert await _in_force(store) == int(OLD[1])
    new = await _start(fleet, *NEW).ready()
    tally = Counter[str]()
    for number in range(6):
        jobs = [await store.enqueue("limits.many", {"seconds": 0.08}) for _ in range(4)]
        is_new = number % 2 == 1
        fault = dice.choice(FAULTS) if number > 1 else "kill"
        if await _strike(fault, new if is_new else old):
            successor = await _start(fleet, *(NEW if is_new else OLD)).ready()
            old, new = (old, successor) if is_new else (successor, new)
        tally[f"{fault} {'new' if is_new else 'old'}"] += 1
        assert await _in_force(store) == int(NEW[1]), f"after {dict(tally)}"
        await store.all_until(jobs, within=IN_TIME)
        done += jobs
    assert Counter([(await store.view(job_id)).state for job_id in done]) == {State.DONE: len(done)}
    most, _ = await check_limits(store, await writes(store))
    report(f"{dict(tally)}; {len(done)} jobs; at most {most} held the limit")
    await check(store, fleet.ledger.events(), acked=done)


async def test_no_more_begin_in_a_time_than_the_rate_allows(fleet: Fleet, store: Store, dice: random.Random) -> None:
    workers = [await fleet.worker("--concurrency", "8").ready() for _ in range(2)]
    jobs: list[JobId] = [await store.enqueue("limits.rated") for _ in range(30)]
    ledger, tally = fleet.ledger, Counter[str]()
    for number in range(6):
        began = len(ledger.events("effect"))
        await eventually(lambda: len(ledger.events("effect")) > began, "a body begins", IN_TIME)  # noqa: B023 # awaited
        victim = dice.choice(workers)
        fault = ("kill", "cancel", "drain", "pause")[number % 4]
        tally[fault] += 1
        if fault == "cancel":
            await store.driver.cancel(dice.choice(jobs), reason="a test")
        elif await _strike(fault, victim):
            workers.remove(victim)
            workers.append(fleet.worker("--concurrency", "8"))
    await store.all_until(jobs, within=len(jobs) + IN_TIME)
    states = Counter([(await store.view(job_id)).state for job_id in jobs])
    assert states[State.DONE] + states[State.CANCELLED] == len(jobs), states
    _, most = await check_limits(store, await writes(store))
    starts = sum(event.type == "invoke" for event in ledger.events("effect"))
    report(f"{dict(tally)}; {starts} starts of {len(jobs)} jobs; at most {most} within the rate's second")
    assert starts >= states[State.DONE]
    await check(store, ledger.events(), acked=jobs)
