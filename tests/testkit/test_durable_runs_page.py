"""What the page on durable runs shows, run: the job in its text does what the text says of it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from app.domain.state import State
from app.domain.step import StepKind
from app.testing import Env
from tests.support.source import CHECKOUT

PAGE = CHECKOUT / "docs/how-to/write-durable-runs.md"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Give the names of the page's one example; its annotations are read off a file."""
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    example: Path = tmp_path_factory.mktemp("page") / "example.py"
    example.write_text(block)
    return runpy.run_path(str(example))


async def test_an_approved_order_is_charged_and_labelled_and_cools_off(env: Env, shown: dict[str, Any]) -> None:
    queued = await env.enqueue(shown["ship"], {"order_id": 7})
    await env.drain()
    assert (await env.job(queued)).state is State.SUSPENDED
    await env.emit("order.approved", "7", {"by": "anna"})
    await env.drain()
    (wait,) = (await env.job(queued)).waiting_on
    assert (wait.name, wait.kind) == ("cool-off", StepKind.SLEEP)
    (label,) = await env.jobs(shown["print_label"])
    assert (label.state, label.parent_id) == (State.DONE, queued.id)
    await env.advance("1h")
    assert await env.result(queued) == "charge-7 T7"
    names = [(step.name, step.kind) for step in (await env.steps(queued)).steps]
    assert names == [
        ("load", StepKind.RUN),
        ("approval", StepKind.EVENT),
        ("charge", StepKind.RUN),
        ("label", StepKind.CALL),
        ("cool-off", StepKind.SLEEP),
    ]


async def test_an_order_that_nobody_approves_ends_after_three_days(env: Env, shown: dict[str, Any]) -> None:
    queued = await env.enqueue(shown["ship"], {"order_id": 8})
    await env.advance("3d")
    assert await env.result(queued) == "nobody approved it"
    assert await env.jobs(shown["print_label"]) == ()
