"""What a type checker must know about durable steps, and what it must refuse.

Never imported: `test_handles.py` runs mypy over it, and so does every check of the whole tree. A line that must be an
error carries its ignore; an ignore that hides nothing is an error itself.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import assert_type

from pydantic import BaseModel

from app.jobs import JobContext, job


class Order(BaseModel):
    number: int


class Label(BaseModel):
    text: str


@job("labels.print")
async def print_label(payload: Order) -> Label:
    return Label(text=str(payload.number))


@job("labels.count")
async def count_labels(shop: str) -> int:
    return len(shop)


async def load(number: int, *, deep: bool = False) -> Order:
    return Order(number=number if deep else -number)


def double(number: int) -> int:
    return number * 2


async def values_are_inferred(ctx: JobContext) -> None:
    assert_type(await ctx.step.run("load", load, 1), Order)
    assert_type(await ctx.step.run("load deep", load, 1, deep=True), Order)
    assert_type(await ctx.step.run("double", double, 1), int)
    assert_type(await ctx.step.run("partial", partial(double, 1)), int)
    assert_type(await ctx.step.run("lambda", lambda: "text"), str)
    assert_type(await ctx.step.call("label", print_label, Order(number=1), priority=1), Label)
    assert_type(await ctx.step.call("count", count_labels, {"shop": "a"}), int)
    pair = await ctx.step.gather(ctx.step.run("a", load, 1), ctx.step.call("b", print_label, Order(number=1)))
    assert_type(pair, tuple[Order, Label])
    many = await ctx.step.gather(*(ctx.step.run(f"n-{number}", double, number) for number in range(9)))
    assert_type(many, tuple[int, ...])
    await ctx.step.sleep("nap", timedelta(hours=1))
    await ctx.step.sleep("until", until=datetime.now(UTC))
    assert_type(await ctx.step.wait_for_event("paid", "order.paid", key="1") is None, bool)


async def mistakes_are_refused(ctx: JobContext) -> None:
    await ctx.step.run("load", load, "one")  # type: ignore[call-overload]
    await ctx.step.run("load", load)  # type: ignore[call-overload]
    await ctx.step.run("double", double, 1, deep=True)  # type: ignore[arg-type, call-arg]
    await ctx.step.call("label", print_label, Label(text=""))  # type: ignore[misc]
    await ctx.step.call("label", print_label, Order(number=1), session=None)  # type: ignore[call-arg]
    await ctx.step.sleep("nap", 3600)  # type: ignore[arg-type]
    await ctx.step.wait_for_event("paid", "order.paid")  # type: ignore[call-arg]
    ctx.progress("half")  # type: ignore[arg-type]
