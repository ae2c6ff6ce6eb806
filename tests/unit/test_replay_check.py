"""What a check says of runs: what fits the code, what does not, and up to where that is looked at."""

from __future__ import annotations

import contextlib
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from app.domain.errors import ChildFailed
from app.domain.job import Counters
from app.domain.state import State
from app.domain.step import StepKind
from app.jobs.context import JobContext
from app.jobs.exits import Terminal
from app.jobs.handle import job
from app.jobs.registry import Registry
from app.replay.check import Check, Verdict
from tests.unit.replay_traces import CHILD_ID, NAME, QUICK, found, step, trace, wait

HOUR = timedelta(hours=1)
PACKED = trace(step("pack", 0, '"box"'), wait("cool-off", 1))


async def pack() -> str:
    raise AssertionError("recorded, or never called under replay")


@job(NAME)
async def ship(ctx: JobContext) -> str:
    packed = await ctx.step.run("pack", pack)
    await ctx.step.sleep("cool-off", HOUR)
    return packed


def test_a_run_that_asks_for_what_is_recorded_fits() -> None:
    finding = found(PACKED, ship)
    assert (finding.verdict, finding.matched, finding.recorded) == (Verdict.FITS, 2, 2)


def test_a_run_that_comes_to_its_end_gives_its_result() -> None:
    assert found(trace(step("pack", 0, '"box"'), step("cool-off", 1, kind=StepKind.SLEEP)), ship).result == '"box"'


def test_a_step_put_in_front_is_named_with_what_is_recorded_there() -> None:
    @job(NAME)
    async def changed(ctx: JobContext) -> None:
        await ctx.step.run("weigh", pack)
        await ctx.step.run("pack", pack)

    finding = found(PACKED, changed)
    assert (finding.verdict, finding.step, finding.asked, finding.code_version) == (
        Verdict.HELD,
        "pack",
        "weigh",
        "1.0.0",
    )
    assert "asks for run step 'weigh' as number 0, where run step 'pack', number 0, is recorded" in finding.message
    assert (finding.matched, finding.recorded) == (0, 2)


def test_a_step_of_another_kind_does_not_fit() -> None:
    @job(NAME)
    async def changed(ctx: JobContext) -> None:
        await ctx.step.sleep("pack", HOUR)

    finding = found(PACKED, changed)
    assert (finding.verdict, finding.matched) == (Verdict.HELD, 1)


def test_a_step_that_is_never_asked_for_is_found_when_the_body_returns() -> None:
    @job(NAME)
    async def emptied(ctx: JobContext) -> None:
        await ctx.step.run("pack", pack)

    finding = found(PACKED, emptied)
    assert (finding.verdict, finding.step) == (Verdict.HELD, "cool-off")
    assert "never asks for sleep step 'cool-off'" in finding.message


def test_a_body_without_a_context_never_asks_for_what_is_recorded() -> None:
    @job(NAME)
    async def emptied() -> None: ...

    assert found(PACKED, emptied).step == "pack"


def test_branches_put_in_front_are_named_with_what_is_recorded_there() -> None:
    @job(NAME)
    async def branched(ctx: JobContext) -> None:
        await ctx.step.gather(ctx.step.run("weigh", pack), ctx.step.run("label", pack))
        await ctx.step.run("pack", pack)

    finding = found(PACKED, branched)
    assert (finding.verdict, finding.step) == (Verdict.HELD, "pack")
    assert "asks for 2 branches as number 0, where run step 'pack', number 0, is recorded" in finding.message


def test_a_step_put_in_front_of_branches_leaves_their_record_behind() -> None:
    @job(NAME)
    async def changed(ctx: JobContext) -> None:
        await ctx.step.run("weigh", pack)
        await ctx.step.gather(ctx.step.run("a", pack))

    finding = found(trace(step("a", 0, '"x"', branch="0.0")), changed)
    assert (finding.verdict, finding.step) == (Verdict.HELD, "a")


def test_a_branch_that_fails_leaves_its_record_behind_when_the_body_goes_on() -> None:
    async def breaks(ctx: JobContext) -> None:
        raise ValueError("no shop")

    @job(NAME)
    async def goes_on(ctx: JobContext) -> None:
        with contextlib.suppress(ValueError):
            await ctx.step.gather(breaks(ctx))
        await ctx.step.run("new", pack)

    finding = found(trace(step("old", 0, '"x"', branch="0.0")), goes_on)
    assert (finding.verdict, finding.step, finding.asked) == (Verdict.HELD, "old", "new")
    assert "asks for 'new' without having asked for run step 'old', number 0 of branch 0.0" in finding.message


def test_a_step_added_after_all_that_is_recorded_fits() -> None:
    @job(NAME)
    async def longer(ctx: JobContext) -> None:
        await ctx.step.run("pack", pack)
        await ctx.step.run("send", pack)

    finding = found(trace(step("pack", 0, '"box"')), longer)
    assert (finding.verdict, finding.matched, finding.asked) == (Verdict.FITS, 1, "send")


def test_branches_that_stop_do_not_keep_others_from_being_looked_at() -> None:
    @job(NAME)
    async def branched(ctx: JobContext) -> None:
        await ctx.step.gather(ctx.step.run("new", pack), ctx.step.run("other", pack))

    side = trace(step("old", 0, '"x"', branch="0.1"))
    finding = found(side, branched)
    assert (finding.verdict, finding.step, finding.asked) == (Verdict.HELD, "old", "other")


def test_what_lies_behind_a_step_that_is_not_recorded_is_not_compared() -> None:
    @job(NAME)
    async def caught(ctx: JobContext) -> None:
        with contextlib.suppress(ValueError):
            await ctx.step.run("may fail", pack)
        await ctx.step.run("instead", pack)

    check = Check(Registry([caught]), QUICK)
    finding = check.check(trace(step("instead", 1, '"x"')))
    assert (finding.verdict, finding.matched, finding.recorded) == (Verdict.FITS, 0, 1)
    assert check.partly == 1


def test_a_value_that_the_annotation_does_not_read_is_held() -> None:
    async def number() -> int:
        return 1

    @job(NAME)
    async def changed(ctx: JobContext) -> None:
        await ctx.step.run("pack", number)

    finding = found(PACKED, changed)
    assert (finding.verdict, finding.step) == (Verdict.HELD, "pack")
    assert "cannot read what run step 'pack'" in finding.message
    assert "box" not in finding.message


def test_a_body_that_swallows_what_ends_it_goes_nowhere() -> None:
    @job(NAME)
    async def swallows(ctx: JobContext) -> str:
        for name in ("pack", "send", "bill"):
            try:
                await ctx.step.run(name, pack)
            except BaseException:  # noqa: BLE001, S112 - what bodies should not do
                continue
        return "over"

    finding = found(trace(step("pack", 0, '"box"')), swallows)
    assert (finding.verdict, finding.result) == (Verdict.FITS, None)


# --- payloads and job types -------------------------------------------------------------------------------------------


class Order(BaseModel):
    number: int


def test_a_payload_that_the_model_refuses_is_named_without_its_values() -> None:
    @job(NAME)
    async def body(payload: Order) -> None: ...

    finding = found(trace(payload='{"number": "secret"}', state=State.READY), body)
    assert finding.verdict is Verdict.REFUSED
    assert "/number" in finding.message
    assert "secret" not in finding.message


class Odd(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def _look_up(cls, value: int) -> int:
        return {1: 1}[value]


def test_a_model_that_fails_to_say_leaves_the_run_unchecked() -> None:
    @job(NAME)
    async def body(payload: Odd) -> None: ...

    finding = found(trace(payload='{"number": 7}'), body)
    assert (finding.verdict, finding.message) == (Verdict.UNCHECKED, "the payload model raised KeyError: 7")


@pytest.mark.parametrize("payload", ['{"number": 7}', '{"number":  7 }'])
def test_of_a_plain_def_only_the_payload_is_looked_at(payload: str) -> None:
    @job(NAME)
    def body(payload: Order) -> None:
        raise AssertionError("never called")

    assert found(trace(step("pack"), payload=payload), body).verdict is Verdict.FITS


def test_a_run_without_a_record_is_not_called() -> None:
    @job(NAME)
    async def body() -> None:
        raise AssertionError("never called")

    assert found(trace(state=State.READY), body).verdict is Verdict.FITS


def test_a_job_type_that_the_code_lacks_is_counted_apart() -> None:
    check = Check(Registry([ship]), QUICK)
    assert check.check(trace(name="other.job")).verdict is Verdict.UNKNOWN
    assert check.unknown == {"other.job": 1}


# --- what a body meets ------------------------------------------------------------------------------------------------


def test_the_body_meets_the_attempt_that_would_come_next() -> None:
    @job(NAME)
    async def asks(ctx: JobContext) -> list[object]:
        await ctx.step.run("pack", pack)
        ctx.signal.raise_if_aborted()
        ctx.progress(0.5)
        ctx.log("line")
        return [ctx.attempt, ctx.claim_no, ctx.crashes, str(ctx.id), dict(ctx.meta)]

    def result(**fields: Any) -> str | None:
        return found(trace(step("pack", 0, '"x"'), meta='{"a":1}', **fields), asks).result

    told = f'"{trace().job.id}",{{"a":1}}]'
    assert result(counters=Counters(2, 5, 1, 0)) == f"[3,6,1,{told}"
    assert result(counters=Counters(2, 5, 0, 0), state=State.RUNNING) == f"[2,6,0,{told}"


def test_what_the_body_enqueues_beside_its_steps_goes_nowhere() -> None:
    @job("mail.job")
    async def mail() -> None: ...

    @job(NAME)
    async def sends(ctx: JobContext) -> bool:
        sent = await ctx.enqueue(mail, {})
        many = await mail.enqueue_many([{}, {}])
        await ctx.step.run("pack", pack)
        return sent.deduped or len(many) != 2

    assert found(trace(step("pack", 0, '"x"')), sends, mail).result == "false"


def test_a_call_whose_child_failed_is_told_to_the_body() -> None:
    @job("child.job")
    async def child() -> None: ...

    @job(NAME)
    async def parent(ctx: JobContext) -> str:
        try:
            await ctx.step.call("one", child, {})
        except ChildFailed as failed:
            return str(failed.details["child_error_code"])
        return "never"

    failed = wait(
        "one", kind=StepKind.CALL, child_id=CHILD_ID, child_state=State.DEAD, child_error_type="E", child_error_code="C"
    )
    assert found(trace(failed), parent, child).result == '"C"'


def test_a_recorded_transaction_is_left_out() -> None:
    packs: list[str] = []

    @job(NAME)
    async def books(ctx: JobContext) -> str:
        async with ctx.step.transaction("book"):
            packs.append("again")
        return await ctx.step.run("after", pack)

    recorded = trace(step("book", 0, kind=StepKind.TRANSACTION), step("after", 1, '"x"'))
    assert (found(recorded, books).result, packs) == ('"x"', [])


def test_a_recorded_transaction_that_cannot_be_left_out_ends_the_replay() -> None:
    @job(NAME)
    async def books(ctx: JobContext) -> str:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(ctx.step.transaction("book"))
        return await ctx.step.run("after", pack)

    recorded = trace(step("book", 0, kind=StepKind.TRANSACTION), step("after", 1, '"x"'))
    finding = found(recorded, books)
    assert (finding.verdict, finding.matched) == (Verdict.UNCHECKED, 1)
    assert "transaction 'book'" in finding.message


@pytest.mark.parametrize("error", [ValueError("no shop"), Terminal("no shop"), SystemExit("no shop")])
def test_an_error_before_the_record_is_asked_for_leaves_the_run_unchecked(error: BaseException) -> None:
    @job(NAME)
    async def raises(ctx: JobContext) -> None:
        await ctx.step.run("pack", pack)
        raise error

    finding = found(PACKED, raises)
    assert (finding.verdict, finding.matched) == (Verdict.UNCHECKED, 1)
    assert f"raised {type(error).__name__}: no shop, at {__file__}:" in finding.message
    assert found(trace(step("pack", 0, '"x"')), raises).verdict is Verdict.FITS
