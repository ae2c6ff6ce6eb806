"""A job type of one release, for tests of what another release makes of its runs."""

from __future__ import annotations

from datetime import timedelta

from app.jobs import JobContext, RetryPolicy, job

NAME = "ship.job"
EVENT = "order.approved"


async def pack(order: int) -> str:
    """Give the box."""
    return f"box {order}"


async def send(box: str, by: str) -> str:
    """Give the note."""
    return f"{box} sent by {by}"


@job(NAME, retry=RetryPolicy(max_attempts=3, backoff=timedelta(milliseconds=20), jitter="none"))
async def ship(ctx: JobContext, order: int) -> str:
    """Pack, wait for the approval, send."""
    box = await ctx.step.run("pack", pack, order)
    await ctx.step.wait_for_event("approval", EVENT, key=str(order))
    return await ctx.step.run("send", send, box, "the old code")
