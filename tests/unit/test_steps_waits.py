"""Sleeps, events and calls: what a run waits for, and what it gets when that is over."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from app.domain.errors import ChildFailed, JobDuplicate, ReplayDiverged, RequestInvalid, StepTimeout
from app.domain.job import JobId
from app.domain.state import State
from app.domain.step import NewWait
from app.jobs.client import Client, use_client
from app.jobs.handle import job
from app.steps.api import Steps
from app.steps.suspension import Suspension
from tests.unit.jobs_fakes import RememberingStore
from tests.unit.steps_fakes import NOW, FakeRun

HOUR = timedelta(hours=1)
CHILD = JobId(UUID(int=7))


class Parcel(BaseModel):
    number: int


class Label(BaseModel):
    text: str
    at: datetime


@job("labels.print")
async def print_label(payload: Parcel) -> Label:
    return Label(text=str(payload.number), at=NOW)


@job("labels.mine", tenant="{shop}")
async def print_for(shop: str) -> str:
    return shop


@job("a.job")
async def own_type(number: int) -> int:
    return number


async def waits(run: FakeRun, body: Any) -> list[NewWait]:
    """Run an attempt that is suspended and give its waits."""
    with use_client(Client(RememberingStore().driver)), pytest.raises(Suspension):
        await run.attempt(body)
    return list(run.recorder.waits)


async def test_a_sleep_waits_for_a_while_or_until_an_instant() -> None:
    (wait,) = await waits(FakeRun(), lambda step: step.sleep("nap", HOUR))
    assert (wait.delay, wait.until) == (HOUR, None)
    (wait,) = await waits(FakeRun(), lambda step: step.sleep("nap", until=NOW))
    assert (wait.delay, wait.until) == (None, NOW)
    (wait,) = await waits(FakeRun(), lambda step: step.sleep("nap", NOW))
    assert (wait.delay, wait.until) == (None, NOW)


@pytest.mark.parametrize(
    "times",
    [
        ((), {}),
        ((HOUR,), {"until": NOW}),
        ((NOW,), {"until": NOW}),
        ((NOW.replace(tzinfo=None),), {}),
        ((HOUR * 9**9,), {}),
        ((NOW + HOUR * 9**6,), {}),
    ],
)
async def test_a_sleep_without_one_time_is_refused(times: Any) -> None:
    with pytest.raises(RequestInvalid):
        await FakeRun().attempt(lambda step: step.sleep("nap", *times[0], **times[1]))


@pytest.mark.parametrize("delay", [timedelta(), -HOUR])
async def test_a_sleep_of_no_time_is_over_at_once_and_recorded(delay: timedelta) -> None:
    run = FakeRun()
    await run.attempt(lambda step: step.sleep("nap", delay))
    assert list(run.steps) == ["nap"]


async def test_a_known_wait_is_waited_for_again() -> None:
    run = FakeRun()
    await waits(run, lambda step: step.sleep("nap", HOUR))
    (wait,) = await waits(run, lambda step: step.sleep("nap", HOUR))
    assert (wait.is_known, wait.until) == (True, NOW + HOUR)
    assert run.recorder.has_waits


async def test_an_event_gives_its_payload_and_nothing_when_it_did_not_come() -> None:
    def body(step: Steps) -> Any:
        return step.wait_for_event("paid", "order.paid", key="7", timeout=HOUR, since="wait")

    run = FakeRun()
    (wait,) = await waits(run, body)
    assert (wait.event, wait.key, wait.delay, wait.from_now) == ("order.paid", "7", HOUR, True)
    run.over("paid", '{"sum":1.50}', has_event=True)
    assert await run.attempt(body) == {"sum": 1.5}
    late = FakeRun()
    await waits(late, body)
    late.over("paid")
    assert await late.attempt(body) is None


async def test_an_event_that_is_required_and_did_not_come_is_an_error_and_null_is_an_event() -> None:
    def body(step: Steps) -> Any:
        return step.wait_for_event("paid", "order.paid", key="7", timeout=HOUR, required=True)

    run = FakeRun()
    await waits(run, body)
    run.over("paid", "null", has_event=True)
    assert await run.attempt(body) is None
    late = FakeRun()
    await waits(late, body)
    late.over("paid")
    with pytest.raises(StepTimeout, match=r"order\.paid") as missing:
        await late.attempt(body)
    assert (missing.value.code, missing.value.terminal) == ("STEP_TIMEOUT", True)
    assert (late.recorder.forgets(is_end=False), late.recorder.forgets(is_end=True)) == ((), ("paid",))


async def test_an_event_that_did_not_come_stays_so_to_a_run_that_has_gone_on() -> None:
    async def body(step: Steps) -> str:
        try:
            await step.wait_for_event("paid", "order.paid", key="7", timeout=HOUR, required=True)
        except StepTimeout:
            await step.run("remind", str)
        raise ValueError("afterwards")

    run = FakeRun()
    await waits(run, body)
    run.over("paid")
    with pytest.raises(ValueError, match="afterwards"):
        await run.attempt(body)
    assert run.recorder.forgets(is_end=True) == ()


async def test_what_is_asked_for_wrongly_is_terminal() -> None:
    for body in (
        lambda step: step.sleep("nap", -HOUR, until=NOW),
        lambda step: step.wait_for_event("paid", "order.paid", key=""),
        lambda step: step.run("", str),
        lambda step: step.call("label", print_label, Parcel(number=3), priority=10),
    ):
        with use_client(Client(RememberingStore().driver)), pytest.raises(RequestInvalid) as refused:
            await FakeRun().attempt(body)
        assert (refused.value.code, refused.value.terminal) == ("REQUEST_INVALID", True)


@pytest.mark.parametrize(
    "wrong",
    [{"event": "no name"}, {"key": ""}, {"key": "a\nb"}, {"key": 7}, {"timeout": timedelta()}, {"since": "ever"}],
)
async def test_an_event_that_cannot_be_waited_for_is_refused(wrong: dict[str, Any]) -> None:
    options = {"event": "order.paid", "key": "7", **wrong}
    with pytest.raises(RequestInvalid):
        await FakeRun().attempt(lambda step: step.wait_for_event("paid", options.pop("event"), **options))


async def test_a_call_admits_its_child_as_any_enqueue_would() -> None:
    run = FakeRun()
    (wait,) = await waits(run, lambda step: step.call("label", print_label, Parcel(number=3), priority=2, tags=("a",)))
    child = wait.child
    assert child is not None
    assert (child.name, child.payload, child.priority, child.tags) == ("labels.print", '{"number":3}', 2, ("a",))
    assert (child.parent_id, child.tenant) == (run.recorder.job.token.job_id, run.recorder.job.tenant)


async def test_a_child_whose_job_type_declares_a_tenant_is_of_that() -> None:
    (wait,) = await waits(FakeRun(), lambda step: step.call("label", print_for, {"shop": "elsewhere"}))
    assert wait.child is not None
    assert wait.child.tenant == "elsewhere"


async def test_a_call_that_its_own_job_would_answer_is_refused() -> None:
    run = FakeRun()
    run.key = "3"
    with use_client(Client(RememberingStore().driver)), pytest.raises(JobDuplicate, match="the very job") as caught:
        await run.attempt(lambda step: step.call("again", own_type, {"number": 3}, idempotency_key="3"))
    assert caught.value.details["existing_id"] == str(run.recorder.job.token.job_id)
    (wait,) = await waits(run, lambda step: step.call("again", own_type, {"number": 3}, idempotency_key="4"))
    assert wait.child is not None


async def test_a_call_gives_its_childs_result_by_its_type() -> None:
    run = FakeRun()

    def body(step: Steps) -> Any:
        return step.call("label", print_label, Parcel(number=3))

    await waits(run, body)
    run.over("label", '{"text":"3","at":"2026-01-02T03:04:05Z"}')
    assert await run.attempt(body) == Label(text="3", at=NOW)
    run.steps["label"] = _with_value(run, '{"text":"3"}')
    with pytest.raises(ReplayDiverged, match="at"):
        await run.attempt(body)


def _with_value(run: FakeRun, value: str) -> Any:
    return replace(run.steps["label"], value=value)


async def test_a_child_that_failed_is_an_error_that_says_how_and_is_made_anew_by_a_retry() -> None:
    run = FakeRun()

    def body(step: Steps) -> Any:
        return step.call("label", print_label, Parcel(number=3))

    await waits(run, body)
    run.fail("label", child_state=State.DEAD, child_error_type="ValueError", child_error_message="no paper")
    with pytest.raises(ChildFailed, match=r"dead: ValueError: no paper") as caught:
        await run.attempt(body)
    assert caught.value.details["child_id"] == str(run.waits["label"].child_id)
    assert run.recorder.forgets(is_end=False) == ("label",)


async def test_a_failed_call_stays_failed_once_a_step_after_it_is_recorded() -> None:
    run = FakeRun()

    async def body(step: Steps) -> str:
        try:
            await step.call("label", print_label, Parcel(number=3))
        except ChildFailed:
            await step.gather(step.run("by hand", str))
        raise ValueError("afterwards")

    await waits(run, body)
    run.fail("label", is_child_gone=True)
    with pytest.raises(ValueError, match="afterwards"):
        await run.attempt(body)
    assert run.recorder.forgets(is_end=False) == ()
    with pytest.raises(ValueError, match="afterwards"):
        await run.attempt(body)
    assert run.recorder.forgets(is_end=False) == ()


async def test_a_failed_call_stays_failed_while_its_child_lives_again() -> None:
    run, fails = FakeRun(), True

    async def body(step: Steps) -> str:
        try:
            await step.call("label", print_label, Parcel(number=3))
        except ChildFailed as failed:
            if fails:
                raise
            return f"{failed.details['child_state']}: {await step.run('by hand', str)}"
        return "never"

    await waits(run, body)
    run.fail("label", child_state=State.CANCELLED)
    fails = False
    await run.attempt(body)
    run.fail("label", child_state=None)
    assert await run.attempt(body) == "dead: "
    fails = True
    with pytest.raises(ChildFailed):
        await run.attempt(body)
    assert run.recorder.forgets(is_end=False) == (), "what this attempt did not come to is recorded all the same"


async def test_a_call_whose_child_lives_again_is_waited_for_where_nothing_has_gone_on() -> None:
    run = FakeRun()

    def body(step: Steps) -> Any:
        return step.call("label", print_label, Parcel(number=3))

    await waits(run, body)
    run.fail("label", child_state=State.DEAD)
    with pytest.raises(ChildFailed):
        await run.attempt(body)
    run.fail("label", child_state=None)
    (wait,) = await waits(run, body)
    assert wait.is_known
