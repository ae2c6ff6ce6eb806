"""Blocks of transactions that a replay would not leave as the first attempt did: refused before they begin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from app.domain.errors import RequestInvalid
from app.steps.api import Steps
from tests.unit.steps_fakes import FakeRun


async def returns(step: Steps) -> str:
    async with step.transaction("book") as session:
        session.append("row")
        return "booked"


async def breaks(step: Steps) -> None:
    while True:
        async with step.transaction("book") as session:
            session.append("row")
            break


async def continues(step: Steps) -> None:
    for _ in range(1):
        async with (
            step.transaction("book") as session,
        ):
            if session is not None:
                session.append("row")
                continue
        raise AssertionError("never here")


async def returns_deep_inside(step: Steps) -> str | None:
    async with step.transaction("book") as session:
        try:
            with memoryview(b""):
                match session:
                    case None:
                        pass
                    case _:
                        for number in range(1):
                            if number:
                                break
                        else:
                            return "booked"
        except ValueError:
            pass
    return None


async def breaks_behind_a_loop(step: Steps) -> None:
    while True:
        async with step.transaction("book"):
            for number in range(1):
                if number:
                    break
            else:
                break


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (returns, "return"),
        (breaks, "break"),
        (continues, "continue"),
        (returns_deep_inside, "return"),
        (breaks_behind_a_loop, "break"),
    ],
)
async def test_a_block_that_is_left_before_its_end_is_refused(
    body: Callable[[Steps], Awaitable[object]], word: str
) -> None:
    run = FakeRun()
    with pytest.raises(RequestInvalid, match=f"left by the {word} in line"):
        await run.attempt(body)
    assert (run.committed, run.rolled_back, run.steps) == ([], [], {})


async def test_a_return_of_a_function_inside_a_block_leaves_nothing() -> None:
    run = FakeRun()

    async def body(step: Steps) -> str:
        async with step.transaction("book") as session:

            def row() -> str:
                return "row"

            while True:
                session.append(row())
                break
        return "after"

    for _ in range(2):
        assert await run.attempt(body) == "after"
    assert len(run.committed) == 1


async def test_code_without_a_source_is_not_looked_at() -> None:
    names: dict[str, Callable[[Steps], Awaitable[str]]] = {}
    text = """async def body(step):
    async with step.transaction("book"):
        return "booked"
"""
    exec(compile(text, "<nowhere>", "exec"), names)  # noqa: S102 - what the test is about
    assert await FakeRun().attempt(names["body"]) == "booked"
