"""The driver's own tasks: whoever happens to start one leaves no trace on it and cannot end it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextvars import ContextVar
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from app.domain.job import Enqueued, NewJob, RunId
from app.drivers.postgres import ringer as ringer_module
from app.drivers.postgres.enqueue_lane import EnqueueLane
from app.drivers.postgres.ringer import Ringer
from app.drivers.protocol import Wake
from app.worker.containment import contain_tasks, enter_body
from tests.support.drivers import new_job

_JOB: ContextVar[str] = ContextVar("job", default="none")


class Line:
    """The ringer's connection: says what was sent and under which job, waits when told to, and fails when told to."""

    def __init__(self) -> None:
        self.sent: list[Sequence[str]] = []
        self.jobs: list[str] = []
        self.failures: list[BaseException] = []
        self.entered, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()

    async def execute(self, _: str, channels: Iterable[str]) -> None:
        """Send."""
        self.jobs.append(_JOB.get())
        self.entered.set()
        await self.go_on.wait()
        if self.failures:
            raise self.failures.pop()
        self.sent.append(sorted(channels))

    def is_closed(self) -> bool:
        """Say that it is open."""
        return False

    def terminate(self) -> None:
        """Cut nothing."""

    async def close(self, *, timeout: float) -> None:  # noqa: ASYNC109 - asyncpg's name
        """Close nothing."""


@pytest.fixture
async def line(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Line]:
    line = Line()

    async def connect(*_: object, **__: object) -> Line:
        return line

    monkeypatch.setattr(ringer_module, "connect", connect)
    leave = contain_tasks(asyncio.get_running_loop(), on_refused=lambda _: None)
    yield line
    leave()


@pytest.fixture
async def complaints() -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
    return said


def new_ringer() -> Ringer:
    return Ringer(make_url("postgresql://nobody@nowhere/none"), "outlast", roll=lambda: 0.5)


def cancel_ours() -> list[str]:
    """Do what a body may try, to every task of ours; gives the names of those that refused."""
    ours = {task for task in asyncio.all_tasks() if task.get_name().startswith("outlast.")} - {asyncio.current_task()}
    return [task.get_name() for task in ours if not task.cancel()]


async def test_a_body_that_cancels_every_task_leaves_the_lane_it_started_to_the_others(line: Line) -> None:
    jobs: list[str] = []

    async def store(batch: Sequence[NewJob]) -> Sequence[Enqueued]:
        jobs.append(_JOB.get())
        await line.execute("", [])
        return [Enqueued(id=job.id, run_id=RunId(job.id), deduped=False) for job in batch]

    lane = EnqueueLane(store)
    line.go_on.clear()

    async def body() -> list[str]:
        enter_body(asyncio.current_task())
        _JOB.set("the first")
        call = asyncio.ensure_future(lane.enqueue(new_job()))
        await line.entered.wait()
        refused = cancel_ours()
        call.cancel()
        await asyncio.wait({call})
        return refused

    refused = await asyncio.get_running_loop().create_task(body(), name="outlast.run.1")
    assert refused == ["outlast.enqueue"]
    neighbour = asyncio.ensure_future(lane.enqueue(new_job()))
    line.go_on.set()
    assert not (await neighbour).deduped
    assert jobs == ["none", "none"]


async def test_a_body_that_cancels_every_task_leaves_the_bell_it_was_first_to_ring(line: Line) -> None:
    sut = new_ringer()
    line.go_on.clear()

    async def body() -> list[str]:
        enter_body(asyncio.current_task())
        _JOB.set("the first")
        sut.ring([Wake.READY])
        await line.entered.wait()
        return cancel_ours()

    refused = await asyncio.get_running_loop().create_task(body(), name="outlast.run.1")
    assert refused == ["outlast.notify"]
    line.go_on.set()
    await sut.quiet()
    assert line.sent == [["outlast_ready"]]
    assert line.jobs == ["none"]


async def test_wake_ups_of_a_round_that_was_cancelled_go_out_with_the_next(line: Line) -> None:
    sut = new_ringer()
    line.go_on.clear()
    sut.ring([Wake.READY])
    await line.entered.wait()
    assert sut._ringing is not None
    sut._ringing.cancel()
    await asyncio.wait({sut._ringing})
    line.go_on.set()
    sut.ring([Wake.DELAYED])
    await sut.quiet()
    assert line.sent == [["outlast_delayed", "outlast_ready"]]


async def test_what_ends_a_round_by_a_fault_is_told_and_its_wake_ups_go_out_with_the_next(
    line: Line, complaints: list[dict[str, Any]]
) -> None:
    sut, fault = new_ringer(), ZeroDivisionError("ours")
    line.failures.append(fault)
    sut.ring([Wake.READY])
    await sut.quiet()
    await asyncio.sleep(0)
    assert [said["exception"] for said in complaints] == [fault]
    sut.ring([Wake.DELAYED])
    await sut.quiet()
    assert line.sent == [["outlast_delayed", "outlast_ready"]]
