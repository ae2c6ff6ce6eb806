"""What a step gives: the decoded form of what was stored, the first time too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, TypeAdapter, field_serializer

from app.domain.errors import ReplayDiverged, ResultInvalid, SettingsInvalid, StepTimeout, StepTooLarge
from app.steps.values import Values, from_text, to_text
from tests.unit.steps_fakes import NOW, FakeRun


class Order(BaseModel):
    number: int
    at: datetime | None = None


class Narrow(BaseModel):
    number: int
    shop: str


async def a_model() -> Order:
    return Order(number=7, at=NOW)


async def a_tuple() -> tuple[int, str]:
    return (1, "two")


async def a_time() -> datetime:
    return NOW


async def a_set() -> set[int]:
    return {1}


async def money() -> Decimal:
    return Decimal("1.10")


async def nothing() -> None:
    return None


async def perhaps() -> Order | None:
    return None


def in_a_thread() -> tuple[datetime, str]:
    return NOW, threading.current_thread().name.split("-")[0]


def a_coroutine() -> Awaitable[tuple[int, str]]:
    return a_tuple()


class Counter:
    async def __call__(self) -> tuple[int, int]:
        return (1, 2)


GIVEN = [
    (a_model, Order(number=7, at=NOW)),
    (a_tuple, (1, "two")),
    (a_time, NOW),
    (a_set, {1}),
    (money, Decimal("1.10")),
    (nothing, None),
    (perhaps, None),
    (a_coroutine, (1, "two")),
    (Counter(), (1, 2)),
    (partial(a_tuple), (1, "two")),
    (lambda: (1, NOW), [1, "2026-01-02T03:04:05Z"]),
    (dict, {}),
]


@pytest.mark.parametrize(("fn", "value"), GIVEN, ids=lambda given: getattr(given, "__name__", ""))
async def test_a_value_is_the_same_on_replay_as_the_first_time(fn: Callable[[], Any], value: object) -> None:
    run = FakeRun()
    for _ in range(2):
        given = await run.attempt(lambda step: step.run("a", fn))
        assert (type(given), given) == (type(value), value)
    assert run.recorder.replayed == 1


@pytest.mark.parametrize("value", [0, -1, 10**18 - 1, 1 - 10**18, 10**18, -(10**18), 10**40, True, False])
@pytest.mark.parametrize("annotation", [int, Any, bool, float, int | None, str])
def test_a_whole_number_is_kept_as_every_other_value_is(annotation: Any, value: int) -> None:
    values, adapter = Values(max_bytes=1000), TypeAdapter[Any](annotation)
    try:
        text = to_text(adapter, value, of="it", max_bytes=1000)
        slow = text, from_text(adapter, text)
    except ResultInvalid:
        with pytest.raises(ResultInvalid):
            values.kept(adapter, value, step="it")
        return
    fast = values.kept(adapter, value, step="it")
    assert fast == slow
    assert type(fast[1]) is type(slow[1])


async def test_a_plain_function_runs_in_a_thread() -> None:
    at, thread = await FakeRun().attempt(lambda step: step.run("a", in_a_thread))
    assert at == NOW
    assert thread == "ThreadPoolExecutor"


async def test_arguments_are_handed_on() -> None:
    async def joined(first: str, *, second: str) -> str:
        return first + second

    assert await FakeRun().attempt(lambda step: step.run("a", joined, "x", second="y")) == "xy"


async def test_a_value_at_the_limit_is_kept_and_one_over_it_is_refused() -> None:
    run = FakeRun(max_bytes=10)
    assert await run.attempt(lambda step: step.run("a", lambda: "12345678")) == "12345678"
    with pytest.raises(StepTooLarge) as caught:
        await FakeRun(max_bytes=10).attempt(lambda step: step.run("a", lambda: "123456789"))
    assert caught.value.terminal


async def wrong_type() -> int:
    return "seven"  # type: ignore[return-value] # what the test shows


@pytest.mark.parametrize("fn", [wrong_type, lambda: float("nan"), lambda: "\0", lambda: "\ud800", object])
async def test_a_value_that_cannot_be_kept_is_refused_and_not_recorded(fn: Callable[[], Any]) -> None:
    run = FakeRun()
    with pytest.raises(ResultInvalid, match="'a'"):
        await run.attempt(lambda step: step.run("a", fn))
    assert run.steps == {}


class Login(BaseModel):
    password: SecretStr


class Revealing(Login):
    @field_serializer("password", when_used="json")
    def reveal(self, password: SecretStr) -> str:
        return password.get_secret_value()


def a_login() -> list[Login]:
    return [Login(password=SecretStr("hunter2"))]


def a_login_in_the_open() -> Revealing:
    return Revealing(password=SecretStr("hunter2"))


async def test_a_secret_that_would_be_stored_as_asterisks_is_refused() -> None:
    run = FakeRun()
    with pytest.raises(ResultInvalid, match="a secret"):
        await run.attempt(lambda step: step.run("a", a_login))
    assert run.steps == {}
    given = await run.attempt(lambda step: step.run("a", a_login_in_the_open))
    assert given.password.get_secret_value() == "hunter2"
    assert await FakeRun().attempt(lambda step: step.run("a", lambda: "**********")) == "**********"


async def test_a_return_type_without_a_json_form_is_refused_before_the_function_is_called() -> None:
    async def socket() -> threading.Lock:
        raise AssertionError("never called")

    with pytest.raises(SettingsInvalid, match="socket"):
        await FakeRun().attempt(lambda step: step.run("a", socket))


async def test_a_record_that_the_code_cannot_read_any_more_is_a_divergence() -> None:
    run = FakeRun()
    await run.attempt(lambda step: step.run("a", a_model))

    async def changed() -> Narrow:
        raise AssertionError("never called")

    with pytest.raises(ReplayDiverged, match="shop") as caught:
        await run.attempt(lambda step: step.run("a", changed))
    assert caught.value.details["step"] == "a"


async def test_a_step_that_takes_too_long_fails_and_the_body_goes_on() -> None:
    run = FakeRun(step_timeout=timedelta(milliseconds=10))

    async def slow() -> None:
        await asyncio.sleep(60)

    with pytest.raises(StepTimeout, match="'a'"):
        await run.attempt(lambda step: step.run("a", slow))
    release = threading.Event()
    try:
        with pytest.raises(StepTimeout):
            await asyncio.wait_for(_beside(run, release), 5)
    finally:
        release.set()


async def _beside(run: FakeRun, release: threading.Event) -> None:
    async def body(step: Any) -> None:
        try:
            await step.run("b", release.wait)
        finally:
            release.set()

    await run.attempt(body)


async def test_a_timeout_of_the_functions_own_stays_its_own() -> None:
    async def own() -> None:
        raise TimeoutError("the far side")

    with pytest.raises(TimeoutError, match="far side"):
        await FakeRun(step_timeout=timedelta(seconds=5)).attempt(lambda step: step.run("a", own))


@pytest.mark.parametrize(
    ("error", "met"),
    [(StopIteration("a"), "RuntimeError"), (SystemExit(3), "SystemExit"), (KeyboardInterrupt(), "KeyboardInterrupt")],
)
async def test_whatever_a_function_in_a_thread_raises_is_raised_in_the_body(error: BaseException, met: str) -> None:
    def raises() -> None:
        raise error

    async def body(step: Any) -> str:
        try:
            await step.run("a", raises)
        except BaseException as caught:  # noqa: BLE001 - Python makes another of a StopIteration in a coroutine
            return type(caught).__name__
        return ""

    assert await FakeRun().attempt(body) == met


async def test_how_long_a_step_took_is_recorded() -> None:
    run = FakeRun()

    async def nap() -> None:
        await asyncio.sleep(0.02)

    await run.attempt(lambda step: step.run("a", nap))
    step = run.steps["a"]
    assert timedelta(milliseconds=15) < step.ended_at - step.started_at < timedelta(seconds=5)
    assert step.ended_at.tzinfo is UTC
