"""Publications of two code versions at once, and the sweep that chooses: the newest one's numbers hold."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.limit import VERSION_KEPT
from tests.conformance.gated import admit, declare, held_by, ids, limited
from tests.postgres.arena import Arena
from tests.support.drivers import NAME

pytestmark = pytest.mark.postgres


async def in_force(arena: Arena) -> int | None:
    (limit,) = await arena.driver.stored_limits(NAME)
    return limit.n


async def test_an_older_versions_publication_behind_a_newer_ones_takes_nothing_back(arena: Arena) -> None:
    await declare(arena, 5, version="1")
    async with arena.holding() as new:
        await declare(new, 2, version="2")
        again = await arena.start(lambda seat: declare(seat, 5, version="1"))
        await again.is_blocked_by(new)
        await new.commit()
    await again.result()
    assert await in_force(arena) == 2


async def test_an_older_versions_publication_behind_a_newer_ones_that_is_taken_back_holds(arena: Arena) -> None:
    await declare(arena, 5, version="1")
    async with arena.holding() as new:
        await declare(new, 2, version="2")
        again = await arena.start(lambda seat: declare(seat, 5, version="1"))
        await again.is_blocked_by(new)
        await new.rollback()
    await again.result()
    assert await in_force(arena) == 5


async def test_a_newer_version_that_comes_back_while_a_sweep_chooses_has_its_numbers(arena: Arena) -> None:
    await declare(arena, 5, version="1")
    await declare(arena, 2, version="2")
    await arena.advance(VERSION_KEPT + timedelta(seconds=1))
    await arena.register(code_version="1")
    assert (await arena.driver.due()).must_free
    async with arena.holding() as back:
        await declare(back, 2, version="2")
        sweep = await arena.start(lambda seat: seat.driver.sweep_slots())
        await sweep.is_blocked_by(back)
        await back.commit()
    assert await sweep.result() == 0
    assert await in_force(arena) == 2


async def test_a_newer_version_that_comes_back_behind_a_sweep_has_its_numbers(arena: Arena) -> None:
    await declare(arena, 5, version="1")
    await declare(arena, 2, version="2")
    await arena.advance(VERSION_KEPT + timedelta(seconds=1))
    worker = await arena.register(code_version="1")
    jobs = await limited(arena, 4)
    async with arena.holding() as sweep:
        await sweep.driver.sweep_slots()
        back = await arena.start(lambda seat: declare(seat, 2, version="2"))
        await back.is_blocked_by(sweep)
        await sweep.commit()
    await back.result()
    assert await in_force(arena) == 2
    assert ids(await admit(arena, worker)) == jobs[:2] == await held_by(arena)
