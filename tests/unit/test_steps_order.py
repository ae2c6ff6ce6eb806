"""Steps in their order: what is asked for again is answered from the record, and what does not match it is found."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from app.domain.errors import Aborted, DriverUnavailable, LeaseLost, ReplayDiverged, RequestInvalid, StepDuplicate
from app.domain.step import Place
from app.domain.verdict import Reason
from app.steps.api import Steps
from app.steps.suspension import Suspension
from tests.unit.steps_fakes import FakeRun

HOUR = timedelta(hours=1)


async def one() -> int:
    return 1


async def never() -> int:
    raise AssertionError("this is recorded, it must not be called again")


async def test_a_recorded_step_is_not_done_again() -> None:
    run = FakeRun()
    assert await run.attempt(lambda step: step.run("a", one)) == 1
    assert await run.attempt(lambda step: step.run("a", never)) == 1
    assert (run.recorder.steps, run.recorder.replayed, run.recorder.reached) == (1, 1, "a")


async def test_the_first_attempt_reads_no_history_and_later_ones_read_it_once() -> None:
    run = FakeRun()

    async def body(step: Steps) -> int:
        return await step.run("a", one) + await step.run("b", one)

    await run.attempt(body)
    assert run.reads == 0
    await run.attempt(body)
    assert run.reads == 1


async def test_a_failure_is_not_recorded() -> None:
    run, calls = FakeRun(), []

    async def flaky() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("once")
        return "there"

    with pytest.raises(ConnectionError):
        await run.attempt(lambda step: step.run("a", flaky))
    assert run.steps == {}
    assert await run.attempt(lambda step: step.run("a", flaky)) == "there"


async def test_names_in_a_loop_are_told_apart_and_one_name_twice_is_refused() -> None:
    run = FakeRun()

    async def told_apart(step: Steps) -> list[int]:
        return [await step.run(f"send-{number}", one) for number in range(3)]

    async def alike(step: Steps) -> list[int]:
        return [await step.run("send", one) for _ in range(3)]

    assert await run.attempt(told_apart) == [1, 1, 1]
    assert [step.place for step in run.steps.values()] == [Place("", 0), Place("", 1), Place("", 2)]
    with pytest.raises(StepDuplicate, match="send") as caught:
        await FakeRun().attempt(alike)
    assert caught.value.terminal


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 129])
async def test_a_name_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(RequestInvalid):
        await FakeRun().attempt(lambda step: step.run(name, one))


async def two(step: Steps) -> None:
    await step.run("a", one)
    await step.run("b", one)


async def swapped(step: Steps) -> None:
    await step.run("b", one)
    await step.run("a", one)


async def shorter(step: Steps) -> None:
    await step.run("a", one)


async def inserted(step: Steps) -> None:
    await step.run("a", one)
    await step.run("new", one)
    await step.run("b", one)


async def other_kind(step: Steps) -> None:
    await step.sleep("a", HOUR)


async def renamed(step: Steps) -> None:
    await step.run("a", one)
    await step.run("c", one)


@pytest.mark.parametrize("body", [swapped, shorter, inserted, other_kind, renamed], ids=lambda body: body.__name__)
async def test_code_that_asks_for_others_than_are_recorded_is_found(body: Any) -> None:
    run = FakeRun()
    await run.attempt(two)
    with pytest.raises(ReplayDiverged) as caught:
        await run.attempt(body)
    assert run.recorder.diverged is caught.value
    assert caught.value.details["code_version"] == "1"


async def test_code_that_goes_on_where_the_record_ends_is_no_divergence() -> None:
    run = FakeRun()
    await run.attempt(shorter)
    await run.attempt(two)
    assert list(run.steps) == ["a", "b"]


async def test_a_divergence_stands_whatever_the_body_makes_of_it() -> None:
    run = FakeRun()
    await run.attempt(two)

    async def deaf(step: Steps) -> str:
        for name in ("b", "a", "c"):
            with suppress(Exception):
                await step.run(name, never)
        return "done"

    await run.attempt(deaf)
    assert run.recorder.diverged is not None
    assert run.recorder.diverged.details["step"] == "a"


async def test_a_step_that_failed_and_was_caught_leaves_a_hole_that_is_no_divergence() -> None:
    run = FakeRun()

    async def fails() -> int:
        raise ConnectionError("always")

    async def body(step: Steps) -> str:
        try:
            await step.run("try", fails)
        except ConnectionError:
            return await step.run("instead", str)
        return "never"

    assert await run.attempt(body) == ""
    assert await run.attempt(body) == ""
    assert list(run.steps) == ["instead"]


async def test_no_new_step_begins_once_the_run_was_told_to_stop_and_recorded_ones_are_given() -> None:
    run = FakeRun()
    await run.attempt(shorter)

    async def told(step: Steps) -> None:
        run.signal.first = Reason.DRAIN
        assert await step.run("a", never) == 1
        await step.run("b", never)

    with pytest.raises(Aborted):
        await run.attempt(told)
    assert list(run.steps) == ["a"]


async def test_a_step_that_runs_already_may_still_record() -> None:
    run = FakeRun()

    async def told() -> int:
        run.signal.first = Reason.DRAIN
        return 1

    await run.attempt(lambda step: step.run("a", told))
    assert list(run.steps) == ["a"]


async def test_a_claim_that_is_gone_stops_the_body() -> None:
    run = FakeRun()
    run.is_held = False
    with pytest.raises(LeaseLost):
        await run.attempt(lambda step: step.run("a", one))


async def test_what_a_step_did_is_not_lost_to_an_outage() -> None:
    run, calls = FakeRun(), []

    async def charge() -> int:
        calls.append(1)
        run.away = 3
        return 1

    assert await run.attempt(lambda step: step.run("a", charge)) == 1
    assert (calls, list(run.steps)) == ([1], ["a"])


async def test_a_record_is_given_up_once_the_claim_is_known_to_be_gone() -> None:
    run = FakeRun()

    async def charge() -> int:
        run.away, run.signal.first = 3, Reason.LEASE_LOST
        return 1

    with pytest.raises(DriverUnavailable):
        await run.attempt(lambda step: step.run("a", charge))


async def test_a_step_inside_a_step_is_refused() -> None:
    run = FakeRun()

    async def body(step: Steps) -> int:
        async def outer() -> int:
            return await step.run("inner", one)

        return await step.run("outer", outer)

    with pytest.raises(RequestInvalid, match="inside step 'outer'"):
        await run.attempt(body)


async def test_steps_in_tasks_of_the_bodys_own_have_an_order_of_their_own() -> None:
    run = FakeRun()
    gates = {"x": asyncio.Event(), "y": asyncio.Event()}

    async def pair(step: Steps, name: str) -> None:
        await step.run(f"{name}1", one)
        await gates[name].wait()
        await step.run(f"{name}2", one)

    async def body(step: Steps) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(pair(step, "x"))
            group.create_task(pair(step, "y"))
            await asyncio.sleep(0.01)
            gates["y"].set()
            await asyncio.sleep(0.01)
            gates["x"].set()

    await run.attempt(body)
    assert {step.name: step.place for step in run.steps.values()} == {
        "x1": Place("~x1", 0),
        "y1": Place("~y1", 0),
        "y2": Place("~y1", 1),
        "x2": Place("~x1", 1),
    }
    for gate in gates.values():
        gate.clear()
    await run.attempt(body)
    assert run.recorder.replayed == 4


@pytest.mark.parametrize("kind", ["sleep", "event", "gather"])
async def test_what_may_wait_is_refused_in_a_task_of_the_bodys_own(kind: str) -> None:
    run = FakeRun()

    async def wait(step: Steps) -> object:
        match kind:
            case "sleep":
                await step.sleep("nap", HOUR)
                return None
            case "event":
                return await step.wait_for_event("e", "order.paid", key="1")
            case _:
                return await step.gather(step.run("a", one))

    async def body(step: Steps) -> None:
        await asyncio.gather(step.run("b", one), wait(step))

    with pytest.raises(RequestInvalid, match=r"ctx\.step\.gather"):
        await run.attempt(body)
    assert run.recorder.waits == ()


async def test_except_exception_does_not_catch_a_suspension() -> None:
    run = FakeRun()

    async def body(step: Steps) -> str:
        try:
            await step.sleep("nap", HOUR)
        except Exception:  # noqa: BLE001 - what the test shows
            return "caught"
        return "slept"

    with pytest.raises(Suspension):
        await run.attempt(body)
    run.over("nap")
    assert await run.attempt(body) == "slept"


async def test_a_body_that_swallows_its_suspension_gets_it_again() -> None:
    run = FakeRun()

    async def body(step: Steps) -> None:
        with suppress(BaseException):
            await step.sleep("nap", HOUR)
        await step.run("b", never)

    with pytest.raises(Suspension):
        await run.attempt(body)
    assert [wait.name for wait in run.recorder.waits] == ["nap"]


async def test_a_body_that_swallows_its_suspension_and_returns_is_suspended_all_the_same() -> None:
    run = FakeRun()

    async def body(step: Steps) -> str:
        try:
            await step.sleep("nap", HOUR)
        except BaseException:  # noqa: BLE001 - what the test shows
            return "swallowed"
        return "slept"

    await run.attempt(body)
    assert [wait.name for wait in run.recorder.waits] == ["nap"]
