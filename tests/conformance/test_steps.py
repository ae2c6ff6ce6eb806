from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.errors import RequestInvalid
from app.domain.job import Counters, RunId
from app.domain.outcome import Completed, DeadLettered, Interrupted, Outcome, Retried, Snoozed
from app.domain.state import DeadReason, State
from app.domain.step import MAIN_BRANCH, NewStep, Place, RunHistory, StepKind, StepView
from app.drivers.protocol import PurgeQuery
from tests.conformance.fences import Fence, every_fence
from tests.conformance.runs import MINUTE, a_step, at, history, record, steps, the_step
from tests.support.drivers import ERROR, LEASE, DriverEnv, new_id, new_job


async def test_a_step_is_recorded_as_it_was(env: DriverEnv) -> None:
    held = await env.running(await env.register(code_version="2.1.0"))
    await env.advance(timedelta(seconds=7))
    step = a_step("load", 3, kind=StepKind.TRANSACTION, place=Place("2.0", 3), lasted=timedelta(seconds=5))
    assert await env.driver.record_step(held.token, step)
    recorded = await the_step(env, held.token.job_id)
    assert recorded == StepView(
        seq=recorded.seq,
        name="load",
        kind=StepKind.TRANSACTION,
        place=Place("2.0", 3),
        value='"load"',
        claim_no=1,
        code_version="2.1.0",
        started_at=env.now() - timedelta(seconds=5),
        ended_at=env.now(),
        has_event=False,
        child_id=None,
    )


async def test_a_run_is_its_job_s_own_at_first_and_empty(env: DriverEnv) -> None:
    held = await env.running()
    assert held.run_id == held.token.job_id
    assert (await env.describe(held.token.job_id)).run_id == held.token.job_id
    assert await history(env, held.token.job_id) == RunHistory()


async def test_steps_come_in_the_order_they_were_recorded_in(env: DriverEnv) -> None:
    held = await env.running()
    for name, number in (("c", 2), ("a", 0), ("b", 1)):
        assert await env.driver.record_step(held.token, a_step(name, number))
    recorded = (await history(env, held.token.job_id)).steps
    assert [(step.name, step.place) for step in recorded] == [
        ("c", Place(MAIN_BRANCH, 2)),
        ("a", Place(MAIN_BRANCH, 0)),
        ("b", Place(MAIN_BRANCH, 1)),
    ]


@pytest.mark.parametrize(
    ("values", "after", "shown"), [(None, 0, 4), (0, 0, 0), (1, 0, 1), (4, 0, 4), (2, 2, 2), (9, 3, 1)]
)
async def test_a_reader_gets_as_many_values_as_it_asks_for(
    env: DriverEnv, values: int | None, after: int, shown: int
) -> None:
    held = await env.running()
    for number, name in enumerate("dacb"):
        assert await env.driver.record_step(held.token, a_step(name, number))
    whole = (await history(env, held.token.job_id)).steps
    seq = 0 if after == 0 else whole[after - 1].seq
    run = await env.driver.run(held.token.job_id, after=seq, values=values)
    assert run is not None
    bare = [replace(step, value=None) for step in whole[after + shown :]]
    assert list(run.history.steps) == [*whole[after : after + shown], *bare]


async def test_the_order_of_recording_is_one_over_all_runs(env: DriverEnv) -> None:
    worker = await env.register()
    first, second = await env.running(worker), await env.running(worker)
    await record(env, first.token, "a")
    await record(env, second.token, "a")
    assert await env.driver.record_step(first.token, a_step("b", 1))
    one, two = await history(env, first.token.job_id), await history(env, second.token.job_id)
    assert one.steps[0].seq < two.steps[0].seq < one.steps[1].seq


@pytest.mark.parametrize(
    "value", [None, "null", "1.5e300", "-0.0", '"\u6f22\U0001f600"', '{"b": 1,  "a": [ ]}', '"\\u0000"', '"' * 2]
)
async def test_a_value_is_given_back_byte_for_byte(env: DriverEnv, value: str | None) -> None:
    held = await env.running()
    assert await env.driver.record_step(held.token, a_step(value=value))
    assert (await the_step(env, held.token.job_id)).value == value


async def test_a_megabyte_is_kept(env: DriverEnv) -> None:
    held = await env.running()
    value = '"' + "x" * (1024 * 1024 - 2) + '"'
    assert await env.driver.record_step(held.token, a_step(value=value))
    assert (await the_step(env, held.token.job_id)).value == value


async def test_recording_moves_nothing_else(env: DriverEnv) -> None:
    held = await env.running()
    before = await env.describe(held.token.job_id)
    await record(env, held.token, "a", "b")
    assert await env.describe(held.token.job_id) == before
    assert await env.ledger(held.token.job_id) == ()


# --- the fence


@every_fence
async def test_a_claim_that_is_gone_records_nothing(env: DriverEnv, fence: Fence) -> None:
    held = await env.running()
    await record(env, held.token, "kept")
    kept = await env.driver.history(held.token.job_id, held.run_id)
    stale = await fence(env, held)
    assert not await env.driver.record_step(stale, a_step("late", 1))
    now = await env.driver.history(held.token.job_id, held.run_id)
    assert now in {kept, RunHistory()}  # a purge takes the run along
    assert await env.driver.history(stale.job_id, RunId(stale.job_id)) in {kept, RunHistory()}


async def test_a_job_nobody_has_claimed_records_nothing(env: DriverEnv) -> None:
    token = (await env.running()).token
    job_id = await env.enqueue()
    assert not await env.driver.record_step(token._replace(job_id=job_id), a_step())
    assert await steps(env, job_id) == []


async def test_a_lease_holds_until_its_last_instant(env: DriverEnv) -> None:
    held = await env.running()
    await env.advance(LEASE - timedelta(milliseconds=1))
    await record(env, held.token, "a")
    assert await steps(env, held.token.job_id) == ["a"]


async def test_a_step_that_was_recorded_is_no_answer_for_a_claim_that_is_gone(env: DriverEnv) -> None:
    held = await env.running()
    await record(env, held.token, "a")
    await env.driver.cancel(held.token.job_id, reason="stop")
    assert not await env.driver.record_step(held.token, a_step("a"))


async def test_a_step_is_recorded_once(env: DriverEnv) -> None:
    held = await env.running()
    assert await env.driver.record_step(held.token, a_step("a", value="1"))
    first = await history(env, held.token.job_id)
    await env.advance(timedelta(seconds=1))
    assert await env.driver.record_step(held.token, a_step("a", value="1"))
    assert await env.driver.record_step(held.token, a_step("a", value="2"))
    assert await history(env, held.token.job_id) == first


async def test_a_later_claim_does_not_change_what_is_recorded(env: DriverEnv) -> None:
    worker = await env.register()
    held = await env.running(worker)
    assert await env.driver.record_step(held.token, a_step("a", value="1"))
    await env.close_attempt(held.token, Interrupted(cause="drain"))
    again = await env.claim_one(worker)
    assert await env.driver.record_step(again.token, a_step("a", value="2"))
    recorded = await the_step(env, held.token.job_id)
    assert (recorded.value, recorded.claim_no) == ("1", 1)


# --- one name, one run


async def test_two_runs_may_have_steps_of_one_name(env: DriverEnv) -> None:
    worker = await env.register()
    first, second = await env.running(worker), await env.running(worker)
    assert await env.driver.record_step(first.token, a_step("a", value="1"))
    assert await env.driver.record_step(second.token, a_step("a", value="2"))
    assert (await the_step(env, first.token.job_id)).value == "1"
    assert (await the_step(env, second.token.job_id)).value == "2"


async def test_an_absent_run_is_empty(env: DriverEnv) -> None:
    held = await env.running()
    await record(env, held.token, "a")
    assert await env.driver.history(held.token.job_id, RunId(new_id())) == RunHistory()
    assert await env.driver.history(new_id(), RunId(new_id())) == RunHistory()


# --- attempts


@pytest.mark.parametrize(
    "outcome",
    [
        Retried(error=ERROR, delay=timedelta(seconds=1)),
        Snoozed(delay=timedelta(seconds=1)),
        Interrupted(cause="drain"),
        Interrupted(cause="drain", delay=timedelta(seconds=1)),
        DeadLettered(error=ERROR, reason=DeadReason.TERMINAL),
    ],
    ids=repr,
)
async def test_a_run_outlives_its_attempts(env: DriverEnv, outcome: Outcome) -> None:
    worker = await env.register(code_version="1")
    held = await env.running(worker)
    await record(env, held.token, "a")
    await env.close_attempt(held.token, outcome)
    if (await env.describe(held.token.job_id)).state is State.DEAD:
        await env.driver.retry(held.token.job_id)
    await env.advance(timedelta(seconds=1))
    await env.driver.promote()
    again = await env.claim_one(await env.register(code_version="2"))
    assert again.run_id == held.run_id
    assert await env.driver.record_step(again.token, a_step("b", 1))
    recorded = (await history(env, held.token.job_id)).steps
    assert [(step.name, step.claim_no, step.code_version) for step in recorded] == [("a", 1, "1"), ("b", 2, "2")]


async def test_a_crash_keeps_what_was_recorded(env: DriverEnv) -> None:
    held = await env.running()
    await record(env, held.token, "a")
    await env.vanish()
    await env.driver.reap()
    assert await steps(env, held.token.job_id) == ["a"]
    assert (await env.describe(held.token.job_id)).counters == Counters(claim_no=1, crashes=1)


async def test_a_done_job_keeps_its_run_until_it_is_purged(env: DriverEnv) -> None:
    held = await env.running()
    await record(env, held.token, "a")
    await env.close_attempt(held.token, Completed(result="1"))
    assert await steps(env, held.token.job_id) == ["a"]
    await env.advance(2 * MINUTE)
    assert await env.driver.purge(PurgeQuery(state=State.DONE, older_than=MINUTE)) == 1
    assert await env.driver.history(held.token.job_id, held.run_id) == RunHistory()


# --- callers side by side


async def test_callers_share_what_they_send_and_each_has_its_own_answer(env: DriverEnv) -> None:
    worker = await env.register()
    await env.driver.enqueue_many([new_job() for _ in range(8)])
    tokens = [held.token for held in await env.claim(worker)]
    await env.driver.cancel(tokens[3].job_id, reason="stop")
    answers = await asyncio.gather(
        *(env.driver.record_step(token, a_step(value=str(place))) for place, token in enumerate(tokens))
    )
    assert answers == [place != 3 for place in range(8)]
    for place, token in enumerate(tokens):
        recorded = (await history(env, token.job_id)).steps
        assert [step.value for step in recorded] == ([] if place == 3 else [str(place)])


async def test_many_steps_of_one_run_may_be_under_way_at_once(env: DriverEnv) -> None:
    held = await env.running()
    names = [f"s{number}" for number in range(10)]
    answers = await asyncio.gather(
        *(
            env.driver.record_step(held.token, a_step(name, place=at(0, f"0.{number}")))
            for number, name in enumerate(names)
        )
    )
    assert answers == [True] * 10
    assert sorted(await steps(env, held.token.job_id)) == sorted(names)


ODD = ["{a,b}", '"', "\\", "\\x1f", "NULL", "  ,", "'", "$1", "\u6f22\U0001f600", "a" * 128]


async def test_odd_names_and_values_share_what_is_sent(env: DriverEnv) -> None:
    held = await env.running()
    values = [json.dumps(odd, ensure_ascii=False) if number % 3 else None for number, odd in enumerate(ODD)]
    answers = await asyncio.gather(
        *(
            env.driver.record_step(
                held.token, a_step(odd, number, value=value, lasted=timedelta(days=number, microseconds=1))
            )
            for number, (odd, value) in enumerate(zip(ODD, values, strict=True))
        )
    )
    assert answers == [True] * len(ODD)
    recorded = (await history(env, held.token.job_id)).steps
    assert {step.name: step.value for step in recorded} == dict(zip(ODD, values, strict=True))
    assert {step.name: env.now() - step.started_at for step in recorded} == {
        odd: timedelta(days=number, microseconds=1) for number, odd in enumerate(ODD)
    }


@pytest.mark.parametrize(
    "bad",
    [a_step("a\0b"), a_step("a\x1fb"), a_step(value='"\0"'), a_step(value='"\x1f"'), a_step(value='"\ud800"')],
    ids=ascii,
)
async def test_a_value_that_cannot_be_kept_fails_alone(env: DriverEnv, bad: NewStep) -> None:
    worker = await env.register()
    good, other = await env.running(worker), await env.running(worker)
    answers = await asyncio.gather(
        env.driver.record_step(good.token, a_step()),
        env.driver.record_step(other.token, bad),
        return_exceptions=True,
    )
    assert answers[0] is True
    assert isinstance(answers[1], RequestInvalid)
    assert await steps(env, good.token.job_id) == ["load"]
    assert await steps(env, other.token.job_id) == []
    await record(env, other.token, "mended")


# --- readers


async def test_a_run_is_shown_to_its_tenant_alone(env: DriverEnv) -> None:
    held = await env.running(tenant="acme")
    await record(env, held.token, "a")
    view = await env.driver.run(held.token.job_id)
    assert view is not None
    assert view.history == await history(env, held.token.job_id)
    assert (view.lines, view.progress, view.children) == ((), None, ())
    assert await env.driver.run(held.token.job_id, tenant="acme") == view
    assert await env.driver.run(held.token.job_id, tenant="other") is None
    assert await env.driver.run(new_id()) is None
