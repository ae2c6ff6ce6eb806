"""A deploy that changes the order of steps, with processes: rolled out, checked too late, rolled back."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
import uuid_utils

from app.domain.event import EventId, NewEvent
from app.domain.job import JobId, NewJob
from app.domain.outcome import OutcomeKind
from app.domain.state import State
from tests.support import jobs_ship
from tests.support.processes import Fleet, Service, eventually
from tests.support.store import Store

pytestmark = [pytest.mark.postgres, pytest.mark.process, pytest.mark.timeout(180)]

OLD, CHANGED = "tests.support.jobs_ship", "tests.support.jobs_ship_changed"
EXACT = "the code asks for run step 'weigh' as number 0, where run step 'pack', number 0, is recorded by code 1"
RUNS = 12


async def of_version(fleet: Fleet, modules: str, version: str) -> Service:
    """Start a worker of a release."""
    return await fleet.worker(OUTLAST_JOBS=modules, OUTLAST_CODE_VERSION=version).ready()


async def begin(store: Store, orders: range) -> dict[int, JobId]:
    """Enqueue a run for each order."""
    ids = {order: JobId(UUID(bytes=uuid_utils.uuid7().bytes)) for order in orders}
    for order, job_id in ids.items():
        await store.driver.enqueue(NewJob(id=job_id, name=jobs_ship.NAME, payload=f'{{"order": {order}}}'))
    return ids


async def approve(store: Store, orders: range) -> None:
    for order in orders:
        event = NewEvent(
            id=EventId(UUID(int=uuid4().int)), tenant="default", name=jobs_ship.EVENT, key=str(order), payload="{}"
        )
        await store.driver.emit(event)


async def all_are(store: Store, ids: dict[int, JobId], orders: range, state: State) -> None:
    async def there() -> bool:
        return {await store.state(ids[order]) for order in orders} == {state}

    await eventually(there, f"runs are {state.value}", within=30)


async def test_runs_outlive_a_deploy_that_changes_their_steps(fleet: Fleet, store: Store) -> None:
    old = await of_version(fleet, OLD, "1")
    ids = await begin(store, range(RUNS))
    await all_are(store, ids, range(RUNS), State.SUSPENDED)
    new = await of_version(fleet, CHANGED, "2")

    side_by_side, left = range(RUNS // 2), range(RUNS // 2, RUNS)
    await approve(store, side_by_side)
    await all_are(store, ids, side_by_side, State.DONE)
    for order in side_by_side:
        view = await store.view(ids[order])
        assert (view.result, view.counters.attempt) == (f'"box {order} sent by the old code"', 1)
        assert {(one.outcome, one.counted, one.code_version) for one in await store.attempts(ids[order])} <= {
            (OutcomeKind.HELD, False, "2"),
            (OutcomeKind.COMPLETED, True, "1"),
        }

    old.terminate()
    assert await old.gone() == 0
    await approve(store, left)
    await all_are(store, ids, left, State.HELD)
    assert {(await store.view(ids[order])).state_reason for order in left} == {EXACT}
    fresh = await begin(store, range(100, 101))
    await all_are(store, fresh, range(100, 101), State.SUSPENDED)
    await approve(store, range(100, 101))
    await all_are(store, fresh, range(100, 101), State.DONE)
    assert (await store.view(fresh[100])).result == '"box 100 sent by the new code"'

    check = fleet.start("jobs", "check", "--against", fleet.url, "--jobs", CHANGED)
    assert await check.gone(60) == 1
    assert check.text.count(EXACT) == len(left)
    assert await fleet.start("jobs", "check", "--against", fleet.url, "--jobs", OLD).gone(60) == 0

    await of_version(fleet, OLD, "1")
    await all_are(store, ids, left, State.DONE)
    assert {(await store.view(ids[order])).counters.attempt for order in left} == {1}
    new.terminate()
    assert await new.gone() == 0
