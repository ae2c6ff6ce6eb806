"""Several limits of one job, limits that change, and rates."""

from __future__ import annotations

from datetime import timedelta

from app.domain.limit import GateReason
from tests.conformance.gated import (
    ALL,
    RATED,
    admit,
    admit_one,
    declare,
    held_by,
    ids,
    keyed,
    limited,
    looked,
    reason_of,
)
from tests.support.drivers import DriverEnv

MINUTE = timedelta(minutes=1)


async def test_several_limits_are_taken_together_or_not_at_all(env: DriverEnv) -> None:
    await declare(env, 2, narrow=1)
    worker = await env.register()
    first, second = await limited(env, 2, limits=[ALL, keyed("x", "narrow")])
    (third,) = await limited(env, limits=[ALL, keyed("y", "narrow")])
    assert ids(await admit(env, worker)) == [first, third]
    assert sorted(await held_by(env)) == sorted([first, first, third, third])
    assert await reason_of(env, second) == GateReason.SLOT


async def test_a_job_that_lacks_another_key_gives_way_to_one_that_does_not(env: DriverEnv) -> None:
    await declare(env, 1, narrow=1)
    worker = await env.register()
    (holder,) = await limited(env, limits=[keyed("x", "narrow")])
    (stuck,) = await limited(env, limits=[ALL, keyed("x", "narrow")])
    (free,) = await limited(env, limits=[ALL, keyed("y", "narrow")])
    first, second = await admit(env, worker)
    assert ids([first, second]) == [holder, free]
    await env.driver.free_slots((second.token,))
    assert await admit(env, worker) == ()
    await env.driver.free_slots((first.token,))
    assert ids(await admit(env, worker)) == [stuck]


async def test_the_newest_publication_says_how_many(env: DriverEnv) -> None:
    await declare(env, 1, version="1")
    worker = await env.register()
    jobs = await limited(env, 5)
    assert ids(await admit(env, worker)) == jobs[:1]
    await declare(env, 3, version="2")
    held = await admit(env, worker)
    assert ids(held) == jobs[1:3]
    await declare(env, 1, version="3")
    await env.driver.free_slots([job.token for job in held])
    assert await admit(env, worker) == ()


async def test_a_limit_that_is_declared_no_more_holds_nobody(env: DriverEnv) -> None:
    await declare(env, 1)
    worker = await env.register()
    jobs = await limited(env, 3)
    await admit_one(env, worker)
    await declare(env, None)
    assert ids(await admit(env, worker)) == jobs[1:]


async def test_a_rate_lets_so_many_start_and_then_one_at_a_time(env: DriverEnv) -> None:
    await declare(env, None, rate=(2, MINUTE))
    worker = await env.register(lease_ms=3_600_000)
    jobs = await limited(env, 4, limits=[RATED])
    answer = await looked(env, worker)
    assert ids(answer.jobs) == jobs[:2]
    assert await reason_of(env, jobs[2]) == GateReason.RATE
    assert (await looked(env, worker)).jobs == ()
    assert (await env.driver.due()).admit_in == timedelta(seconds=30)
    await env.advance(timedelta(seconds=29))
    assert await admit(env, worker) == ()
    await env.advance(timedelta(seconds=1))
    assert (await env.driver.due()).admit_in == timedelta()
    assert ids(await admit(env, worker)) == [jobs[2]]
    await env.advance(MINUTE)
    assert ids(await admit(env, worker)) == [jobs[3]]
    assert await held_by(env) == []


async def test_a_job_waits_for_its_slot_without_using_up_its_rate(env: DriverEnv) -> None:
    await declare(env, 1, rate=(1, MINUTE))
    worker = await env.register(lease_ms=3_600_000)
    jobs = await limited(env, 2, limits=[ALL, RATED])
    held = await admit_one(env, worker)
    await env.advance(MINUTE)
    assert await admit(env, worker) == ()
    await env.driver.free_slots((held.token,))
    assert ids(await admit(env, worker)) == jobs[1:]
