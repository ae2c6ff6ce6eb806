"""The jobs of throughput figures: they do nothing, through everything a real one goes through."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pydantic import BaseModel

from app.jobs import JobContext, Limit, Rate, job

RATED = 1_000  # starts in ten milliseconds, more than there are


class Nothing(BaseModel):
    """A payload of about twenty bytes."""

    number: int = 0


@job("bench.noop")
async def noop(ctx: JobContext, payload: Nothing) -> None:
    """Do nothing."""


@job("bench.noop", limits=[Limit(1)])
async def one(ctx: JobContext, payload: Nothing) -> None:
    """Do nothing, one at a time of each key."""


@job("bench.noop", limits=[Limit(1_000)])
async def wide(ctx: JobContext, payload: Nothing) -> None:
    """Do nothing, with a slot that is always free."""


@job("bench.noop", rate=Rate(RATED, per=timedelta(milliseconds=10)))
async def rated(ctx: JobContext, payload: Nothing) -> None:
    """Do nothing, within a rate that is never reached."""


@job("bench.noop")
async def brief(ctx: JobContext, payload: Nothing) -> None:
    """Take five milliseconds."""
    await asyncio.sleep(0.005)


STEPS = 5


@job("bench.noop")
async def five_steps(ctx: JobContext, payload: Nothing) -> None:
    """Do nothing, five times, each recorded."""
    for number in range(STEPS):
        await ctx.step.run(f"step {number}", _same, number)


@job("bench.noop")
async def nap(ctx: JobContext, payload: Nothing) -> None:
    """Wait, longer than any measurement lasts."""
    await ctx.step.sleep("nap", timedelta(hours=1))


async def _same(number: int) -> int:
    return number
