"""The job types whose runs are on record.

What a body asks for, in which order, and what it makes of the values never changes here: the traces of earlier versions
are replayed against it. What is new gets a job type of its own.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import text

from app.domain.errors import ChildFailed, StepTimeout
from app.jobs import JobContext, RetryPolicy, job
from app.jobs.exits import Snooze, Terminal

SOON = RetryPolicy(max_attempts=3, backoff=timedelta(milliseconds=20), jitter="none")
DAY = timedelta(days=1)
TICK = timedelta(milliseconds=50)


class Colour(StrEnum):
    RED = "red"


class Item(BaseModel):
    sku: str
    price: Decimal
    at: datetime


@dataclass
class Point:
    x: float
    y: float


class Order(BaseModel):
    number: int
    note: str = ""


async def an_int() -> int:
    return 2**60 + 1


async def a_float() -> float:
    return -0.0


async def a_text() -> str:
    return 'über "€" \n \U0001f4e6'


async def nothing() -> None: ...


async def a_tuple() -> tuple[int, str, bool]:
    return (1, "a", True)


async def an_instant() -> datetime:
    return datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)


async def a_time() -> timedelta:
    return timedelta(hours=1, microseconds=1)


async def an_amount() -> Decimal:
    return Decimal("0.10")


async def an_id() -> UUID:
    return UUID("01900000-0000-7000-8000-000000000001")


async def a_colour() -> Colour:
    return Colour.RED


async def items() -> list[Item]:
    return [Item(sku="a", price=Decimal("1.50"), at=datetime(2026, 1, 1, tzinfo=UTC))]


async def a_point() -> Point:
    return Point(0.1, 1e300)


def plain() -> dict[str, int | None]:
    return {"a": 1, "b": None}


TYPED: tuple[Any, ...] = (
    an_int, a_float, a_text, nothing, a_tuple, an_instant, a_time, an_amount, an_id, a_colour, items, a_point,
)  # fmt: skip


@job("golden.values")
async def values(ctx: JobContext, order: Order) -> str:
    """Record a value of each kind, and say what came of it."""
    got: list[object] = [order.number, order.note, dict(ctx.meta), ctx.tags]
    got += [await ctx.step.run(fn.__name__, fn) for fn in TYPED]
    got.append(await ctx.step.run("plain", plain))
    got.append(await ctx.step.run("untyped", lambda: [1, {"a": [None, 1.5]}]))
    return "; ".join(map(_said, got))


def _said(value: object) -> str:
    """Say what a value is, in words that do not depend on a library's `repr`."""
    match value:
        case datetime():
            return value.isoformat()
        case [Item() as item]:
            return f"{type(item).__name__} {item.sku} {item.price!r} {item.at.isoformat()}"
        case _:
            return f"{type(value).__name__} {value}"


@job("golden.waits")
async def waits(ctx: JobContext, key: str) -> list[Any]:
    """Sleep, hear of an event, miss one, and miss one that is required."""
    await ctx.step.sleep("nap", TICK)
    heard = await ctx.step.wait_for_event("heard", "golden.event", key=key)
    again = await ctx.step.wait_for_event("again", "golden.event", key=key, timeout=DAY)
    missed = await ctx.step.wait_for_event("missed", "golden.event", key=f"no {key}", timeout=TICK)
    try:
        await ctx.step.wait_for_event("required", "golden.event", key=f"no {key}", timeout=TICK, required=True)
    except StepTimeout as late:
        missed = [missed, late.details["step"]]
    await ctx.step.sleep("over", timedelta())
    return [heard, again, missed]


@job("golden.child", retry=RetryPolicy(max_attempts=1))
async def child(number: int) -> tuple[int, str]:
    """Double a number that is not negative."""
    if number < 0:
        raise ValueError("negative")
    return (number * 2, "doubled")


@job("golden.calls")
async def calls(ctx: JobContext, number: int) -> list[object]:
    """Call a child."""
    first = await ctx.step.call("first", child, {"number": number})
    second = await ctx.step.call("second", child, {"number": number + 1})
    return [first, second]


@job("golden.failed-call")
async def failed_call(ctx: JobContext) -> str:
    """Call a child that fails, do something instead, and wait."""
    try:
        await ctx.step.call("call", child, {"number": -1})
    except ChildFailed as failed:
        said = await ctx.step.run("instead", str, failed.details["child_state"])
        await ctx.step.sleep("later", DAY)
        return said
    return "never"


@job("golden.branches")
async def branches(ctx: JobContext, key: str) -> list[object]:
    """Run branches in branches; one of them waits for longer than this is looked at."""
    await ctx.step.run("before", an_int)

    async def inner() -> tuple[object, ...]:
        front = await ctx.step.run("in front", a_text)
        heard, ran = await ctx.step.gather(
            ctx.step.wait_for_event("inner event", "golden.event", key=key), ctx.step.run("inner run", an_int)
        )
        return (front, heard, ran)

    async def longer() -> None:
        await ctx.step.sleep("short", TICK)
        await ctx.step.sleep("long", DAY)

    both = await ctx.step.gather(inner(), longer())
    return [*both, await ctx.step.run("after", an_int)]


@job("golden.joined")
async def joined(ctx: JobContext) -> list[object]:
    """Run branches to their end, by a gather and in tasks of its own."""
    gathered = await ctx.step.gather(ctx.step.run("one", an_int), ctx.step.call("two", child, {"number": 3}))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ctx.step.run(f"task {number}", a_tuple)) for number in range(3)]
    await ctx.step.sleep("nap", TICK)
    return [*gathered, *(task.result() for task in tasks)]


@job("golden.books")
async def books(ctx: JobContext) -> int:
    """Write in a transaction."""
    async with ctx.step.transaction("book") as session:
        await session.execute(text("select 1"))
    await ctx.step.sleep("nap", TICK)
    return await ctx.step.run("after", an_int)


@job("golden.fails", retry=SOON)
async def fails(ctx: JobContext) -> None:
    """Fail for good after a step, once a step that failed was made up for."""
    try:
        await ctx.step.run("fails", _refuse)
    except ValueError:
        await ctx.step.run("instead", a_text)
    raise Terminal("no way on")


@job("golden.retried", retry=RetryPolicy(max_attempts=9, backoff=DAY, max_backoff=DAY, jitter="none"))
async def retried(ctx: JobContext) -> None:
    """Fail after a step, and wait for another attempt."""
    await ctx.step.run("first", an_int)
    raise ValueError("not yet")


@job("golden.snoozes")
async def snoozes(ctx: JobContext) -> None:
    """Snooze after a step."""
    await ctx.step.run("first", an_int)
    raise Snooze(DAY)


@job("golden.later")
def later(order: Order) -> str:
    """Be enqueued for later; a plain function."""
    return order.note


@job("golden.open")
async def still_open(ctx: JobContext, key: str) -> None:
    """Wait for an event that does not come, and for a child that is not due."""
    await ctx.step.gather(
        ctx.step.wait_for_event("event", "golden.event", key=key, timeout=DAY),
        ctx.step.call("call", later, Order(number=2), delay=DAY),
    )


def _refuse() -> None:
    raise ValueError("refused")


HANDLES = (
    values, waits, child, calls, failed_call, branches, joined, books, fails, retried, snoozes, later, still_open,
)  # fmt: skip
