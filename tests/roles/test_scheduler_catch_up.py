"""What a scheduler makes of times nobody was there for: by policy, counted exactly, on both drivers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.roles.scheduling import MINUTE, every, fired, scheduling, skipped, to_full_minute
from tests.support.drivers import DriverEnv, driver_kind, driver_url, env

__all__ = ["driver_kind", "driver_url", "env"]


FIVE_MINUTES = [(5, "none", 1), (5, "latest", 1), (5, "all", 5), (5, "all-3", 3)]
THREE_DAYS = [(4320, "none", 1), (4320, "latest", 1), (4320, "all", 10), (4320, "all-3", 3)]


@pytest.mark.parametrize(("minutes", "policy", "count"), [*FIVE_MINUTES, *THREE_DAYS])
async def test_after_downtime_exactly_what_the_policy_says_fires(
    env: DriverEnv, minutes: int, policy: str, count: int
) -> None:
    catch_up, _, most = policy.partition("-")
    declared = every(catch_up=catch_up, max_catch_up=int(most or 10))
    begin = await to_full_minute(env)
    async with scheduling(env, declared):
        pass
    await env.advance(minutes * MINUTE)
    async with scheduling(env, declared) as post:
        await post.until_decided(begin + minutes * MINUTE)
        await post.until_looked()
        rows = await post.rows()
    due = [begin + number * MINUTE for number in range(1, minutes + 1)]
    assert [row.at for row in rows] == due
    assert fired(rows) == due[-count:]
    assert skipped(rows) == [(at, "catch_up") for at in due[:-count]]


async def test_none_fires_nothing_that_is_a_minute_late(env: DriverEnv) -> None:
    declared = every("*/5 * * * *", catch_up="none")
    now = await to_full_minute(env)
    async with scheduling(env, declared):
        pass
    await env.advance(timedelta(minutes=12 - now.minute % 5))
    async with scheduling(env, declared) as post:
        await post.until_looked()
        rows = await post.rows()
    assert (fired(rows), len(skipped(rows))) == ([], 2)


@pytest.mark.parametrize("catch_up", ["none", "latest", "all"])
async def test_a_clock_that_goes_backwards_decides_nothing_twice(env: DriverEnv, catch_up: str) -> None:
    begin = await to_full_minute(env)
    async with scheduling(env, every(catch_up=catch_up)) as post:
        for number in range(1, 4):
            await env.advance(MINUTE)
            await post.until_decided(begin + number * MINUTE)
        await env.advance(-2 * MINUTE)
        await post.until_looked()
        await env.advance(2 * MINUTE)
        await post.until_looked()
        await env.advance(MINUTE)
        await post.until_decided(begin + 4 * MINUTE)
        rows = await post.rows()
    assert fired(rows) == [begin + number * MINUTE for number in range(1, 5)]


async def test_a_changed_expression_never_backfills(env: DriverEnv) -> None:
    begin = await to_full_minute(env)
    async with scheduling(env, every("0 0 1 1 *", catch_up="all"), version="1"):
        pass
    await env.advance(60 * MINUTE)
    async with scheduling(env, every(catch_up="all"), version="2") as post:
        await env.advance(MINUTE)
        await post.until_decided(begin + 61 * MINUTE)
        assert fired(await post.rows()) == [begin + 61 * MINUTE]
