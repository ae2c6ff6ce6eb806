"""The keys of limits: forgotten when nobody uses them, and not locked by a worker that starts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.errors import OutlastError
from app.domain.outcome import Completed
from tests.conformance.gated import RATED, admit, declare, ids, keyed, limited, request
from tests.postgres.arena import Arena
from tests.postgres.test_races_limits import known_key

pytestmark = pytest.mark.postgres

DAY, HOUR = timedelta(days=1), timedelta(hours=1)


async def keys(arena: Arena) -> list[str]:
    return [row["key"] for row in await arena.fetch("select key from outlast.limit_key order by key")]


async def aged(arena: Arena) -> None:
    """Let keys look as though their last use were more than a day ago."""
    await arena.execute("update outlast.limit_key set used_at = used_at - interval '25 hours'")


async def test_unused_keys_are_found_by_any_look_and_forgotten_part_by_part(arena: Arena) -> None:
    await declare(arena)
    worker = await arena.register()
    for key in "abc":
        await limited(arena, limits=[keyed(key)])
    held = await admit(arena, worker)
    assert not (await arena.driver.due()).must_free
    await aged(arena)
    for job in held[1:]:
        await arena.close_attempt(job.token, Completed())
    await arena.driver.free_slots([job.token for job in held[1:]])
    (parked,) = await limited(arena, limits=[keyed("a")])
    assert (await arena.driver.admit(request(worker))).jobs == ()
    await aged(arena)
    assert (await arena.driver.due()).must_free
    for left in (3, 2, 1):
        assert len(await keys(arena)) == left
        await arena.driver.sweep_slots(1)
    assert await keys(arena) == ["a"]
    assert not (await arena.driver.due()).must_free
    await arena.driver.free_slots([held[0].token])
    assert ids(await admit(arena, worker)) == [parked]


async def test_a_key_at_which_a_job_is_parked_is_in_use(arena: Arena) -> None:
    await declare(arena, 0)
    worker = await arena.register()
    (parked,) = await limited(arena)
    assert await admit(arena, worker) == ()
    await aged(arena)
    await arena.driver.sweep_slots()
    assert not (await arena.driver.due()).must_free
    await declare(arena, 1, version="2")
    assert ids(await admit(arena, worker)) == [parked]


async def test_a_key_whose_rate_is_used_up_is_kept_until_it_is_full_again(arena: Arena) -> None:
    await declare(arena, None, rate=(1, 3 * DAY))
    worker = await arena.register(lease_ms=3_600_000)
    await limited(arena, limits=[RATED])
    assert len(await admit(arena, worker)) == 1
    for _ in range(2):
        await arena.advance(DAY + HOUR)
        await arena.driver.sweep_slots()
        assert len(await keys(arena)) == 1
    await arena.advance(DAY + HOUR)
    await arena.driver.sweep_slots()
    assert await keys(arena) == []


async def test_a_key_that_was_opened_for_nobody_is_forgotten(arena: Arena) -> None:
    _, first, second = await known_key(arena)
    for job_id in (first, second):
        await arena.driver.cancel(job_id, reason="stop")
    await arena.execute("update outlast.limit_key set open_at = outlast.clock()")
    await aged(arena)
    await arena.driver.sweep_slots()
    assert await keys(arena) == []


async def test_who_declares_what_was_declared_waits_only_for_keys_with_parked_jobs(arena: Arena) -> None:
    worker, first, second = await known_key(arena)
    async with arena.holding() as one:
        assert await one.connection.fetch("select from outlast.limit_key for update") != []
        await arena.at_once(lambda seat: declare(seat, 1, version="2"))
        await one.rollback()
    assert ids(await admit(arena, worker)) == [first]
    await arena.execute("update outlast.limit_key set open_at = null")
    await arena.driver.cancel(first, reason="stop")
    await arena.driver.sweep_slots()
    async with arena.holding() as one:
        assert await one.connection.fetch("select from outlast.limit_key for update") != []
        again = await arena.start(lambda seat: declare(seat, 1, version="3"))
        await again.is_blocked_by(one)
        await one.rollback()
    await again.result()
    assert await arena.fetch("select from outlast.limit_key where open_at is not null") != []
    assert await arena.bucket(second) == "gate"


async def test_all_keys_with_parked_jobs_are_opened(arena: Arena) -> None:
    await declare(arena)
    worker = await arena.register()
    for key in "abcab":
        await limited(arena, limits=[keyed(key)])
    assert len(await admit(arena, worker)) == 3
    await arena.execute("update outlast.limit_key set open_at = null")
    await declare(arena, 1, version="2")
    opened = await arena.fetch("select key from outlast.limit_key where open_at is not null order by key")
    assert [row["key"] for row in opened] == ["a", "b"]


async def test_a_publication_whose_limits_cannot_be_stored_shows_nothing(arena: Arena) -> None:
    await declare(arena, 1)
    (before,) = await arena.driver.job_types()
    await arena.execute("alter table outlast.limit_rule add check (declared < 5)")
    with pytest.raises(OutlastError):
        await declare(arena, 5, version="2")
    assert await arena.driver.job_types() == (before,)
    assert [limit.declared for limit in await arena.driver.stored_limits()] == [1]
