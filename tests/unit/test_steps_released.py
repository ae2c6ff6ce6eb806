"""Histories that released versions recorded are replayed by this one: the same values, and no step's work again.

`histories` has one file for each release that changed what is recorded. A file is never changed; a change that cannot
replay it breaks the runs people have.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from app.domain.errors import ReplayDiverged
from app.domain.step import Place, StepKind, StepView
from app.jobs import job
from app.steps.api import Steps
from tests.unit.steps_fakes import NOW, FakeRun

FOLDER = Path(__file__).parent / "histories"
FILES = sorted(FOLDER.glob("*.json"))


class Order(BaseModel):
    """What a step gave."""

    number: int
    note: str = "added since"  # a model may grow as long as what was stored can be read


@job("released.child")
async def child(number: int) -> Order:
    return Order(number=number)


async def load(number: int) -> Order:
    raise AssertionError("this is recorded, it must not be done again")


def count(number: int) -> int:
    raise AssertionError("this is recorded, it must not be done again")


async def whole(step: Steps) -> list[Any]:
    """Be a body with every kind of step, alone and in branches."""
    loaded = await step.run("load", load, 1)
    await step.sleep("nap", NOW)
    called = await step.call("call", child, {"number": 2})
    event = await step.wait_for_event("event", "order.paid", key="1")
    late = await step.wait_for_event("late", "order.late", key="1", timeout=timedelta(seconds=1))
    async with step.transaction("book") as session:
        session.append("this is recorded, it must not be written again")

    async def branch() -> tuple[int, int]:
        first = await step.run("branch-1", count, 3)
        return first, (await step.gather(step.run("deep", count, 4)))[0]

    both = await step.gather(branch(), step.call("branch-2", child, {"number": 5}))
    own = await asyncio.create_task(step.run("own task", load, 6))
    return [loaded, called, event, late, *both, own, await step.run("last", count, 7)]


def recorded(path: Path) -> FakeRun:
    """Give a run with the history of a file."""
    run = FakeRun()
    run.claim_no = 3
    for seq, row in enumerate(json.loads(path.read_text())):
        run.steps[row["name"]] = StepView(
            seq=seq,
            name=row["name"],
            kind=StepKind(row["kind"]),
            place=Place(row["branch"], row["number"]),
            value=row["value"],
            claim_no=1,
            code_version=path.stem,
            started_at=NOW,
            ended_at=NOW,
            has_event=row.get("has_event", False),
        )
    return run


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_what_a_release_recorded_is_replayed(path: Path) -> None:
    run = recorded(path)
    assert await run.attempt(whole) == [
        Order(number=1),
        Order(number=2),
        {"by": "ann", "sum": 1.5e300},
        None,
        (3, 4),
        Order(number=5),
        Order(number=6),
        7,
    ]
    assert (run.committed, run.recorder.replayed) == ([], len(run.steps))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_code_that_ends_before_it_is_found(path: Path) -> None:
    run = recorded(path)
    with pytest.raises(ReplayDiverged) as found:
        await run.attempt(lambda step: step.run("load", load, 1))
    assert found.value.details == {"step": "nap", "code_version": path.stem}


def test_there_is_a_history_of_the_first_release() -> None:
    assert "0.1.0" in {path.stem for path in FILES}
