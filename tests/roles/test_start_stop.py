"""Start and stop of every role, in any order, any number of them at once, any number of times.

Each role of the product is put through the same commands; a new role is added to `ROLES` and has to bear them too.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from app.control.waiting import ResultWaiters
from app.domain.errors import Draining
from app.drivers.memory.driver import MemoryDriver
from app.http.app import create_app
from app.http.role import ApiRole
from app.http.server import HttpServer
from app.jobs.handle import job
from app.lifecycle.drain import DrainNotice
from app.lifecycle.role import Announcer, Phase, Role
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from app.outbox.passes import SharedPasses
from app.outbox.relay import Relay
from tests.http.api import Api
from tests.roles.harness import Bench
from tests.support.drivers import memory_env

Made = Callable[[], Awaitable[Role]]


@job("quick.job")
async def quick() -> int:
    return 1


async def a_worker() -> Role:
    return Bench([quick]).worker


async def an_api() -> Role:
    async with memory_env() as env:
        services = Api(env).services
    driver = MemoryDriver()
    server = HttpServer(create_app(services), host="127.0.0.1", port=0, graceful_seconds=1)
    return ApiRole(server, services, count=driver.stats)


async def an_announcer() -> Role:
    return Announcer(lambda: None)


async def a_relay() -> Role:
    driver = MemoryDriver()
    return Relay(
        outbox=driver.outbox,
        new_passes=lambda: SharedPasses(driver.outbox),
        driver=driver,
        telemetry=Telemetry(metrics=Metrics()),
        roll=Random(7).random,
    )


ROLES: dict[str, Made] = {"worker": a_worker, "api": an_api, "announcer": an_announcer, "relay": a_relay}
each_role = pytest.mark.parametrize("made", ROLES.values(), ids=ROLES)


def notice(seconds: float = 5.0) -> DrainNotice:
    return DrainNotice(cause="SIGTERM", started=time.monotonic(), seconds=seconds)


def now(role: Role) -> Phase:
    """Read the phase anew, where a type checker would remember it."""
    return role.phase


@each_role
async def test_ten_cycles_leave_no_task_and_no_thread_behind(made: Made) -> None:
    role = await made()
    await role.start()
    await role.stop()
    tasks, threads = len(asyncio.all_tasks()), threading.active_count()
    for cycle in range(10):
        await asyncio.gather(role.start(), role.start())
        assert now(role) is Phase.RUNNING
        if cycle % 2:
            role.drain(notice())
        await asyncio.gather(role.stop(), role.stop(), role.stop())
        assert now(role) is Phase.STOPPED
    assert len(asyncio.all_tasks()) == tasks
    assert threading.active_count() <= threads


@each_role
async def test_a_drain_alone_ends_it_by_its_deadline(made: Made) -> None:
    """Who only drains a role has its word for the deadline, without a stop."""
    role = await made()
    await role.start()
    role.drain(notice(seconds=1.0))
    async with asyncio.timeout(10):
        while now(role) is not Phase.STOPPED:
            await asyncio.sleep(0.01)
    await role.stop()


@each_role
async def test_it_is_not_started_while_it_leaves_and_can_be_after(made: Made) -> None:
    role = await made()
    await role.start()
    role.drain(notice())
    with pytest.raises(Draining):
        await role.start()
    await role.stop()
    await role.start()
    assert now(role) is Phase.RUNNING
    await role.stop()


@each_role
@pytest.mark.parametrize("seed", range(3))
async def test_any_order_of_starts_stops_and_drains_ends_stopped(made: Made, seed: int) -> None:
    role, roll = await made(), Random(seed)

    async def tries(step: Callable[[], Awaitable[None]]) -> None:
        for _ in range(roll.randrange(4)):
            await asyncio.sleep(0)
        try:
            await step()
        except Draining:
            assert step == role.start

    async def drain() -> None:
        role.drain(notice(seconds=2.0))

    for _ in range(6):
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(tries(roll.choice([role.start, role.start, role.stop, drain])))
    await role.stop()
    assert now(role) in {Phase.STOPPED, Phase.NEW}
    await role.start()
    assert now(role) is Phase.RUNNING
    await role.stop()


async def test_waiters_that_were_stopped_can_be_opened_again() -> None:
    """An API that starts again lets requests wait again."""
    driver = MemoryDriver()
    waiters = ResultWaiters(driver)
    waiters.stop()
    waiters.open()
    async with asyncio.TaskGroup() as group:
        group.create_task(waiters.run())
        bench = Bench([quick], driver=driver)
        job_id = await bench.enqueue("quick.job")
        waiting = group.create_task(waiters.finished(job_id, 10))
        await bench.worker.start()
        assert await waiting is True
        await bench.worker.stop()
        waiters.stop()
