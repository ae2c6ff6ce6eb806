"""Dead letters in groups say when they died, hour by hour, and what the newest of them failed with."""

from __future__ import annotations

from datetime import timedelta

from app.domain.outcome import DeadLettered, ErrorInfo
from app.domain.snapshot import HOURS
from app.domain.state import DeadReason
from app.drivers.sealing.driver import SealingDriver
from tests.conformance.endings import expired
from tests.support.drivers import DriverEnv

HOUR = timedelta(hours=1)


async def die(env: DriverEnv, message: str = "away") -> None:
    token = (await env.running()).token
    error = ErrorInfo(type="ShopError", message=message, code=None)
    await env.close_attempt(token, DeadLettered(error=error, reason=DeadReason.TERMINAL))


async def test_deaths_are_counted_by_the_hour_of_the_last_day(env: DriverEnv) -> None:
    await die(env)
    for wait in (30 * timedelta(minutes=1), 19 * HOUR, 4 * HOUR, timedelta(minutes=29, seconds=59)):
        await env.advance(wait)
        await die(env)
    (group,) = await env.driver.dead_letters()
    assert group.count == 5
    hours = {hour: count for hour, count in enumerate(group.per_hour) if count}
    assert (len(group.per_hour), hours) == (HOURS, {0: 2, 19: 1, 23: 2}), "the hour until now is the last"
    await env.advance(timedelta(seconds=1))
    (group,) = await env.driver.dead_letters()
    assert (group.per_hour[0], sum(group.per_hour)) == (2, 5), "a day ago to the instant is in the first hour"
    await env.advance(timedelta(microseconds=1))
    (group,) = await env.driver.dead_letters()
    assert (group.per_hour[0], sum(group.per_hour), group.count) == (1, 4, 5)
    await env.advance(25 * HOUR)
    (group,) = await env.driver.dead_letters()
    assert (group.per_hour, group.count) == ((0,) * HOURS, 5)


async def test_a_group_shows_what_its_newest_job_failed_with(env: DriverEnv) -> None:
    await die(env, "order 1 of 'eu'")
    await die(env, "order 2 of 'us'")
    await die(env, "x" * 8_000)
    (group,) = await env.driver.dead_letters()
    is_open = not isinstance(env.driver, SealingDriver)  # else messages are encrypted, and none is made of them
    assert group.message == ("x" * 300 + "…" if is_open else None), "its beginning"
    await die(env, "order 4 of 'fr'\nis unknown to shop-2")
    (group,) = await env.driver.dead_letters()
    assert group.message == ("order ‹n› of ‹text› is unknown to shop-‹n›" if is_open else None)


async def test_what_ended_without_an_error_has_no_message(env: DriverEnv) -> None:
    await expired(env, {})
    (group,) = await env.driver.dead_letters()
    assert (group.message, group.per_hour[-1]) == (None, 1)
