"""The job type of `jobs_ship` in a later release, which weighs the box before it packs it."""

from __future__ import annotations

from app.jobs import JobContext, job
from tests.support.jobs_ship import EVENT, NAME, pack, send


async def weigh(order: int) -> float:
    """Give the weight."""
    return order / 10


@job(NAME)
async def ship(ctx: JobContext, order: int) -> str:
    """Weigh, pack, wait for the approval, send."""
    await ctx.step.run("weigh", weigh, order)
    box = await ctx.step.run("pack", pack, order)
    await ctx.step.wait_for_event("approval", EVENT, key=str(order))
    return await ctx.step.run("send", send, box, "the new code")
