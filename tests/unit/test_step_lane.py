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
from app.drivers.postgres.step_lane import StepLane
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
    first = asyncio.create_task(lane.record(a_step("sent")))
    await is_sent.wait()
    second = asyncio.create_task(lane.record(a_step("queued")))
    await asyncio.sleep(0)
    await lane.close()
    for caller, known in ((first, "is unknown"), (second, "is not recorded")):
        with pytest.raises(DriverUnavailable, match=known) as caught:
            await caller
        assert caught.value.details["is_closed"] is True
