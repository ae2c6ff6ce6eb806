"""Steps that gathered when the driver closes: every caller is answered, with what is known of its step."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import pytest

from app.domain.errors import DriverUnavailable
from app.domain.step import MAIN_BRANCH, NewStep, Place, StepKind
from app.drivers.postgres import step_lane
from app.drivers.postgres.step_lane import MIN_SHARED, StepLane
from app.drivers.postgres.steps import Recording


def a_step(name: str) -> Recording:
    step = NewStep(name=name, kind=StepKind.RUN, place=Place(MAIN_BRANCH, 0), value=None, lasted=timedelta())
    return Recording(cast("Any", None), step)


async def test_a_close_tells_whoever_it_leaves_what_is_known_of_their_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_lane, "_LAST_ROUND_SECONDS", 0.01)
    is_sent = asyncio.Event()

    async def record(_batch: Sequence[Recording]) -> Sequence[bool]:
        is_sent.set()
        await asyncio.Event().wait()
        return ()

    lane = StepLane(record)
    first = asyncio.ensure_future(lane.record(a_step("sent")))
    await is_sent.wait()
    second = asyncio.ensure_future(lane.record(a_step("queued")))
    await asyncio.sleep(0)
    await lane.close()
    for caller, known in ((first, "is unknown"), (second, "is not recorded")):
        with pytest.raises(DriverUnavailable, match=known) as caught:
            await caller
        assert caught.value.details["is_closed"] is True


class Server:
    """Answers a batch when told to; `batches` are the sizes of those that came."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self._open: list[asyncio.Event] = []

    async def record(self, batch: Sequence[Recording]) -> Sequence[bool]:
        """Take a batch, and answer it once released."""
        self.batches.append(len(batch))
        gate = asyncio.Event()
        self._open.append(gate)
        await gate.wait()
        return [True] * len(batch)

    async def release(self, number: int) -> None:
        """Answer a batch, and let everyone do what follows from it."""
        self._open[number].set()
        for _ in range(8):
            await asyncio.sleep(0)


async def _come(lane: StepLane, count: int) -> list[asyncio.Future[bool]]:
    callers = [lane.record(a_step(f"s{number}")) for number in range(count)]
    for _ in range(4):
        await asyncio.sleep(0)
    return callers


async def test_few_steps_are_one_batch_and_many_are_two_halves() -> None:
    server = Server()
    lane = StepLane(server.record)
    few = await _come(lane, MIN_SHARED - 1)
    assert server.batches == [MIN_SHARED - 1]
    await server.release(0)
    many = await _come(lane, 101)
    assert server.batches[1:] == [51, 50]
    await server.release(1)
    await server.release(2)
    assert await asyncio.gather(*few, *many) == [True] * (MIN_SHARED + 100)


async def test_one_half_goes_out_again_while_the_other_is_on_its_way() -> None:
    server = Server()
    lane = StepLane(server.record)
    first = await _come(lane, 100)
    await server.release(0)
    assert [caller.done() for caller in first] == [True] * 50 + [False] * 50
    again = await _come(lane, 50)
    assert server.batches == [50, 50, 50], "it does not wait for the other half"
    await server.release(1)
    last = await _come(lane, 5)
    assert server.batches == [50, 50, 50], "few wait for what is on its way"
    await server.release(2)
    assert server.batches == [50, 50, 50, 5]
    await server.release(3)
    assert await asyncio.gather(*first, *again, *last) == [True] * 155
    alone = await _come(lane, 1)
    await server.release(4)
    assert await alone[0] is True, "senders that have left are made again"


async def test_never_more_than_two_batches_are_on_their_way() -> None:
    server = Server()
    lane = StepLane(server.record)
    callers = await _come(lane, 64)
    callers += await _come(lane, 200)
    assert server.batches == [32, 32]
    await server.release(0)
    assert server.batches == [32, 32, 200]
    await server.release(1)
    assert server.batches == [32, 32, 200]
    await server.release(2)
    assert await asyncio.gather(*callers) == [True] * 264
