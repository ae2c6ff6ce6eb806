"""Whose numbers of limits are in force: the newest code version's, whoever starts again, until it has gone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app.domain.job import WorkerId
from app.domain.limit import VERSION_FORGOTTEN, VERSION_KEPT
from tests.conformance.gated import admit, admit_one, declare, ids, limited
from tests.support.drivers import LEASE, NAME, DriverEnv

SOON = timedelta(seconds=1)


async def in_force(env: DriverEnv) -> dict[str, int | None]:
    return {each.limit: each.n for each in await env.driver.stored_limits(NAME)}


async def started(env: DriverEnv, version: str, n: int | None, **others: Any) -> WorkerId:
    """Start a worker of a version, as one starts: its job types first."""
    await declare(env, n, name=NAME, version=version, rate=None, **others)
    return await env.register(code_version=version)


async def goes(env: DriverEnv, worker: WorkerId) -> None:
    """Let a worker leave, and the moment pass for which its version still counts."""
    await env.driver.close_worker(worker)
    await env.advance(VERSION_KEPT + SOON)


async def test_an_older_version_that_starts_again_takes_no_number_back(env: DriverEnv) -> None:
    await started(env, "1", 5)
    await started(env, "2", 2)
    assert await in_force(env) == {"limit": 2}
    await started(env, "1", 5)
    assert await in_force(env) == {"limit": 2}


async def test_nor_does_it_however_long_it_was_away(env: DriverEnv) -> None:
    old = await started(env, "1", 5)
    await env.register(code_version="2")
    await declare(env, 2, version="2")
    await goes(env, old)
    await started(env, "1", 5)
    assert await in_force(env) == {"limit": 2}


async def test_nor_does_a_limit_come_back_that_the_newer_version_has_no_more(env: DriverEnv) -> None:
    await started(env, "1", 1, narrow=1)
    await started(env, "2", None, wide=7)
    await started(env, "1", 1, narrow=1)
    assert await in_force(env) == {"limit": None, "narrow": None, "wide": 7}


async def test_a_newer_version_without_limits_leaves_none_in_force(env: DriverEnv) -> None:
    await started(env, "1", 1)
    await started(env, "2", None)
    await started(env, "1", 1)
    await limited(env, 3)
    assert len(await admit(env, await env.register())) == 3


async def test_one_version_that_declares_another_number_is_newest(env: DriverEnv) -> None:
    await started(env, "1", 5)
    await started(env, "2", 2)
    await declare(env, 4, version="1")
    assert await in_force(env) == {"limit": 4}
    await declare(env, 2, version="2")
    assert await in_force(env) == {"limit": 4}


async def test_an_operators_number_stands_above_every_version(env: DriverEnv) -> None:
    await started(env, "1", 5)
    await env.driver.set_limit(NAME, "limit", 9, by="ann")
    await started(env, "2", 2)
    assert await in_force(env) == {"limit": 9}
    await started(env, "1", 5)
    await env.driver.set_limit(NAME, "limit", None, by="ann")
    assert await in_force(env) == {"limit": 2}


async def test_after_a_rollback_the_older_number_is_in_force_once_the_newer_version_has_gone(env: DriverEnv) -> None:
    await started(env, "1", 5)
    new = await started(env, "2", 2)
    back = await started(env, "1", 5)
    await env.driver.close_worker(new)
    assert not (await env.driver.due()).must_free
    await env.driver.sweep_slots()
    assert await in_force(env) == {"limit": 2}
    await env.advance(VERSION_KEPT + SOON)
    assert (await env.driver.due()).must_free
    assert await env.driver.sweep_slots() == 0
    assert await in_force(env) == {"limit": 5}
    assert not (await env.driver.due()).must_free
    await env.driver.close_worker(back)


async def test_a_version_of_long_ago_counts_for_a_while_after_its_last_worker_has_left(env: DriverEnv) -> None:
    await started(env, "1", 5)
    new = await started(env, "2", 2)
    await env.advance(VERSION_KEPT + SOON)
    await env.driver.close_worker(new)
    assert not (await env.driver.due()).must_free
    await env.driver.sweep_slots()
    assert await in_force(env) == {"limit": 2}
    await env.advance(VERSION_KEPT + SOON)
    await env.driver.sweep_slots()
    assert await in_force(env) == {"limit": 5}


async def test_a_number_that_rises_by_a_rollback_lets_those_start_that_waited(env: DriverEnv) -> None:
    worker = await started(env, "1", 2)
    new = await started(env, "2", 1)
    first, second = await limited(env, 2)
    assert ids(await admit(env, worker)) == [first]
    await goes(env, new)
    await env.driver.sweep_slots()
    assert ids(await admit(env, await env.register(code_version="1"))) == [second]


async def test_the_newer_version_has_its_number_again_when_it_comes_back(env: DriverEnv) -> None:
    await started(env, "1", 5)
    await goes(env, await started(env, "2", 2))
    await env.driver.sweep_slots()
    assert await in_force(env) == {"limit": 5}
    await started(env, "2", 2)
    assert await in_force(env) == {"limit": 2}


async def test_a_version_whose_workers_are_lost_has_gone_too(env: DriverEnv) -> None:
    await started(env, "2", 2)
    await env.advance(LEASE)
    await env.driver.reap()
    await env.advance(VERSION_KEPT + SOON)
    await started(env, "1", 5)
    assert await in_force(env) == {"limit": 5}


async def test_with_nobody_left_what_was_in_force_stays(env: DriverEnv) -> None:
    await goes(env, await started(env, "1", 5))
    await goes(env, await started(env, "2", 2))
    assert not (await env.driver.due()).must_free
    await env.driver.sweep_slots()
    assert await in_force(env) == {"limit": 2}


async def test_a_version_that_nobody_has_run_for_long_comes_anew(env: DriverEnv) -> None:
    await goes(env, await started(env, "1", 5))
    await goes(env, await started(env, "2", 2))
    await env.advance(VERSION_FORGOTTEN)
    await declare(env, 3, version="3")
    await declare(env, 5, version="1")
    assert await in_force(env) == {"limit": 5}


async def test_a_lower_number_of_the_newest_version_ends_nobody_and_starts_nobody(env: DriverEnv) -> None:
    worker = await started(env, "1", 2)
    first, second, third = await limited(env, 3)
    held = await admit(env, worker)
    assert ids(held) == [first, second]
    await started(env, "2", 1)
    await env.driver.free_slots((held[0].token,))
    assert await admit(env, worker) == ()
    await env.driver.free_slots((held[1].token,))
    assert (await admit_one(env, worker)).token.job_id == third
