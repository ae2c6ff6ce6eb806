"""The fences of what a run writes: a token wrong in one part, and a worker that is no longer one, write nothing.

Beside the right token in the same statement, where verbs share statements.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from app.domain.errors import LeaseLost
from app.domain.job import ClaimToken
from app.domain.outcome import Outcome, SettleAnswer, Settlement, Suspended
from app.domain.step import NewNotes, StepKind
from app.drivers.postgres.steps import Recording, record_steps
from tests.conformance.runs import a_sleep, a_step, steps
from tests.conformance.versions import diverged, handed_back
from tests.postgres.arena import Arena
from tests.support.drivers import LEASE, with_token

pytestmark = pytest.mark.postgres

Write: TypeAlias = Callable[[Arena, ClaimToken], Awaitable[bool]]


async def a_recorded_step(arena: Arena, token: ClaimToken) -> bool:
    return await arena.driver.record_step(token, a_step())


async def a_transaction(arena: Arena, token: ClaimToken) -> bool:
    try:
        async with arena.driver.step_transaction(token, a_step(kind=StepKind.TRANSACTION)):
            pass
    except LeaseLost:
        return False
    return True


async def a_note(arena: Arena, token: ClaimToken) -> bool:
    return await arena.driver.note([NewNotes(token, ("a line",), (0.5, None))]) == 1


async def a_suspension(arena: Arena, token: ClaimToken) -> bool:
    return await _settled(arena, token, Suspended(waits=(a_sleep(),)))


async def a_hand_back(arena: Arena, token: ClaimToken) -> bool:
    return await _settled(arena, token, diverged())


async def _settled(arena: Arena, token: ClaimToken, outcome: Outcome) -> bool:
    (answer,) = await arena.driver.settle([Settlement(token, outcome, has_waits=True)])
    return answer is SettleAnswer.SETTLED


WRITES: list[Write] = [a_recorded_step, a_transaction, a_note, a_suspension, a_hand_back]
every_write = pytest.mark.parametrize("write", [pytest.param(one, id=one.__name__) for one in WRITES])
every_part = pytest.mark.parametrize("part", ["fence", "lower fence", "claim_no", "worker_id"])


async def everything(arena: Arena) -> list[object]:
    """Give all that a run writes to."""
    tables = ("running", "ready", "held", "handed", "suspended", "attempt", "step", "wait", "progress", "run_line")
    return [await arena.fetch(f"select * from outlast.{table}") for table in tables]


async def wrong(arena: Arena, token: ClaimToken, part: str) -> ClaimToken:
    """Give a token of a held claim with one part of another one."""
    values: dict[str, Any] = {
        "fence": token.fence + 1,
        "lower fence": token.fence - 1,
        "claim_no": token.claim_no + 1,
        "worker_id": await arena.register(),
    }
    return with_token(token, **{part.removeprefix("lower "): values[part]})


@every_part
@every_write
async def test_a_token_wrong_in_one_part_writes_nothing(arena: Arena, write: Write, part: str) -> None:
    stale = await wrong(arena, (await arena.running()).token, part)
    before = await everything(arena)
    assert await write(arena, stale) is False
    assert await everything(arena) == before


@pytest.mark.parametrize("end", ["lost_at", "closed_at", "lease"])
@every_write
async def test_a_worker_that_is_no_longer_one_writes_nothing(arena: Arena, write: Write, end: str) -> None:
    token = (await arena.running()).token
    if end == "lease":
        await arena.advance(LEASE)  # no renewal, no reaper yet
    else:
        await arena.execute(f"update outlast.worker set {end} = outlast.clock()")
    before = await everything(arena)
    assert await write(arena, token) is False
    assert await everything(arena) == before


@every_write
async def test_the_whole_token_writes(arena: Arena, write: Write) -> None:
    token = (await arena.running()).token
    before = await everything(arena)
    assert await write(arena, token) is True
    assert await everything(arena) != before


@every_part
async def test_a_step_beside_one_of_the_right_token_is_fenced_by_its_own(arena: Arena, part: str) -> None:
    token = (await arena.running()).token
    stale = await wrong(arena, token, part)
    db: Any = arena.driver
    answers = await record_steps(db._db, [Recording(stale, a_step("bad", 1)), Recording(token, a_step("good"))])
    assert list(answers) == [False, True]
    assert await steps(arena, token.job_id) == ["good"]


@every_part
async def test_notes_beside_those_of_the_right_token_are_fenced_by_their_own(arena: Arena, part: str) -> None:
    token = (await arena.running()).token
    stale = await wrong(arena, token, part)
    assert await arena.driver.note([NewNotes(token, ("good",)), NewNotes(stale, ("bad",), (0.5, None))]) == 1
    run = await arena.driver.run(token.job_id)
    assert run is not None
    assert ([line.message for line in run.lines], run.progress) == (["good"], None)


@pytest.mark.parametrize(
    "change", ["lost_at = outlast.clock()", "closed_at = outlast.clock()", "drain_phase = 'accept'"]
)
async def test_what_was_handed_to_a_worker_that_is_no_longer_one_is_held(arena: Arena, change: str) -> None:
    held, old, _ = await handed_back(arena)
    assert await arena.driver.release_due() == 0
    await arena.execute(f"update outlast.worker set {change} where id = {old}")
    assert await arena.driver.release_due() == 1
    assert await arena.bucket(held.token.job_id) == "held"
