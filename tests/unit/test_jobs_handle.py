"""Handles: what `@job` makes of a function, and which functions it refuses."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import FrozenInstanceError
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import BaseModel, Field

from app.domain.errors import JobNameTaken, PayloadInvalid, SettingsInvalid
from app.jobs import JobContext, JobHandle, job
from app.jobs.invoke import bind
from tests.unit.jobs_fakes import context

if TYPE_CHECKING:
    from decimal import Decimal


class Order(BaseModel):
    order_id: int
    shop: str = "main"


@job("orders.async", queue="mail")
async def with_context(ctx: JobContext, payload: Order) -> str:
    """Say the order.

    And more.
    """
    return f"{ctx.attempt}:{payload.order_id}"


@job("orders.sync")
def without_context(payload: Order) -> int:
    return payload.order_id


@job("orders.plain")
def plain(ctx: JobContext, number: int, *, copy: Annotated[str, Field(max_length=3)] = "x") -> str:
    return f"{ctx.attempt}:{number}:{copy}"


@job("orders.nothing")
async def nothing() -> None: ...


@job("orders.late")
async def late(payload: DefinedLater) -> None: ...


class DefinedLater(BaseModel):
    number: int = 3


class Unreadable:
    pass


async def test_a_handle_is_the_function_still() -> None:
    assert await with_context(context(attempt=4), Order(order_id=12)) == "4:12"
    assert without_context(Order(order_id=3)) == 3
    assert plain(context(), 3, copy="y") == "1:3:y"


def test_a_handle_says_what_it_is() -> None:
    assert isinstance(with_context, JobHandle)
    assert (with_context.name, with_context.policy.queue, with_context.is_sync) == ("orders.async", "mail", False)
    assert without_context.is_sync
    assert with_context.doc == "Say the order.\n\nAnd more."
    assert repr(inspect.signature(with_context)) == repr(inspect.signature(with_context.body))
    assert "test_jobs_handle.py:" in with_context.place


def test_a_handle_is_frozen_and_equal_to_itself_only() -> None:
    with pytest.raises(FrozenInstanceError):
        with_context.name = "other"  # type: ignore[misc] # what the test shows
    assert len({with_context, without_context, with_context}) == 2


@pytest.mark.parametrize(
    ("handle", "payload", "args", "kwargs"),
    [
        (without_context, '{"order_id": 3}', (Order(order_id=3),), {}),
        (plain, '{"number": 3, "copy": "abc"}', ("ctx", 3), {"copy": "abc"}),
        (plain, '{"number": 3}', ("ctx", 3), {"copy": "x"}),
        (nothing, "{}", (), {}),
        (late, "{}", (DefinedLater(),), {}),
    ],
)
def test_a_payload_becomes_the_arguments(
    handle: JobHandle[Any, Any], payload: str, args: tuple[object, ...], kwargs: dict[str, object]
) -> None:
    ctx = context()
    given, named = bind(handle, payload, ctx)
    assert given == tuple(ctx if each == "ctx" else each for each in args)
    assert named == kwargs


@pytest.mark.parametrize(
    ("handle", "payload", "pointer"),
    [
        (without_context, "{}", "/order_id"),
        (without_context, '{"order_id": "x"}', "/order_id"),
        (without_context, "[]", ""),
        (plain, '{"number": 1, "extra": 2}', "/extra"),
        (plain, '{"number": 1, "a/b~c": 2}', "/a~1b~0c"),
        (plain, '{"number": 1, "copy": "long"}', "/copy"),
        (nothing, '{"a": 1}', "/a"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_without_its_values(
    handle: JobHandle[Any, Any], payload: str, pointer: str
) -> None:
    with pytest.raises(PayloadInvalid) as caught:
        bind(handle, payload, context())
    errors = caught.value.details["errors"]
    assert isinstance(errors, list)
    assert errors[0]["pointer"] == pointer
    assert "long" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "Upper", "a b", "-a", "a" * 129, "a\n", "é", "a/b"])
def test_names_are_what_every_log_and_url_can_carry(name: str) -> None:
    with pytest.raises(SettingsInvalid):
        job(name)


def test_a_second_declaration_of_a_body_is_refused() -> None:
    with pytest.raises(JobNameTaken, match=r"orders\.async.*orders\.again"):
        job("orders.again")(with_context)


async def _stream(payload: Order) -> AsyncIterator[int]:
    yield payload.order_id


def _generate(payload: Order) -> Iterator[int]:
    yield payload.order_id


@pytest.mark.parametrize("body", [_stream, _generate, Order, 3])
def test_bodies_without_one_result_are_refused(body: Callable[..., object]) -> None:
    with pytest.raises(SettingsInvalid):
        job("a.job")(body)


def _unannotated(payload) -> None: ...  # type: ignore[no-untyped-def] # noqa: ANN001 # what the test shows


def _variadic(*numbers: int) -> None: ...


def _keywords(**numbers: int) -> None: ...


def _two_contexts(one: JobContext, two: JobContext) -> None: ...


def _only_for_checkers(amount: Decimal) -> None: ...


def _unreadable(thing: Unreadable) -> None: ...


def _unwritable() -> Unreadable:
    return Unreadable()


def _misspelt(payload: Odrer) -> None: ...  # type: ignore[name-defined] # noqa: F821 # what the test shows


@pytest.mark.parametrize(
    "body",
    [_unannotated, _variadic, _keywords, _two_contexts, _only_for_checkers, _unreadable, _unwritable, _misspelt],
    ids=lambda body: body.__name__,
)
def test_annotations_that_cannot_work_are_refused_when_read(body: Callable[..., object]) -> None:
    handle: JobHandle[Any, Any] = job("a.job")(body)
    with pytest.raises(SettingsInvalid, match=body.__name__) as caught:
        _ = handle.signature
    assert caught.value.fix


def test_a_template_that_no_payload_can_fill_is_refused_when_read() -> None:
    def body(order_id: int) -> None: ...

    handle = job("a.job", idempotency_key="{orderid}")(body)
    with pytest.raises(SettingsInvalid, match="orderid"):
        _ = handle.job_type
