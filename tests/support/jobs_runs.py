"""Jobs that run in durable steps of every kind, and record each time the work of a step is really done.

Loaded by workers that tests start. `BOOKING` is the application's table that `runs.whole` writes to.
"""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel
from sqlalchemy import text

from app.domain.errors import ChildFailed
from app.jobs import JobContext, RetryPolicy, job
from tests.support.jobs_faults import effects
from tests.support.ledger import Ledger

# Crashes are what these tests make; nothing is ever dead of them.
PATIENT = RetryPolicy(max_attempts=5, max_crashes=1_000, backoff=timedelta(milliseconds=20), factor=1.0, jitter="none")
POLL = timedelta(seconds=1)  # what a worker leaves untold when it dies is found by this search
BOOKING = "create table booking(job_id uuid not null, claim_no int not null)"
EVENT = "runs.go"
STEPS = ("load", "nap", "child", "go", "book", "a", "b", "c")


class Loaded(BaseModel):
    """What a step gives: a model, so that what is replayed has to be read back."""

    number: int


def done(ctx: JobContext, step: str) -> None:
    """Record that the work of a step is done now."""
    Ledger.of_process().record("step", "invoke", job=ctx.id, epoch=ctx.claim_no, attempt=ctx.attempt, step=step)


async def give(ctx: JobContext, step: str, number: int) -> Loaded:
    """Do the work of a step."""
    done(ctx, step)
    return Loaded(number=number)


def give_in_thread(ctx: JobContext, step: str, number: int) -> int:
    """Do it in a thread."""
    done(ctx, step)
    return number


@job("runs.double", retry=PATIENT, event_poll=POLL)
async def double(ctx: JobContext, number: int) -> int:
    """Be a child that has a step of its own."""
    with effects(ctx):
        loaded = await ctx.step.run("double", give, ctx, "double", number * 2)
        return loaded.number


@job("runs.whole", retry=PATIENT, event_poll=POLL)
async def whole(ctx: JobContext) -> list[object]:
    """Run a step, sleep, call a child, wait for an event, write in a transaction, and branch."""
    with effects(ctx):
        loaded = await ctx.step.run("load", give, ctx, "load", 1)
        await ctx.step.sleep("nap", timedelta(milliseconds=40))
        doubled = await ctx.step.call("child", double, {"number": 21})
        said = await ctx.step.wait_for_event("go", EVENT, key=str(ctx.id))
        async with ctx.step.transaction("book") as session:
            done(ctx, "book")
            booked = text("insert into booking(job_id, claim_no) values (:job_id, :claim_no)")
            await session.execute(booked, {"job_id": ctx.id, "claim_no": ctx.claim_no})
        a, b, c = await ctx.step.gather(
            ctx.step.run("a", give, ctx, "a", 3),
            ctx.step.call("b", double, {"number": 2}),
            ctx.step.run("c", give_in_thread, ctx, "c", 5),
        )
        return [loaded.number, doubled, said, a.number, b, c]


RESULT = '[1,42,{"by":"ann"},3,4,5]'


@job("runs.wait", retry=PATIENT, event_poll=POLL)
async def wait(ctx: JobContext, seconds: float | None = None, times: int = 1) -> list[object]:
    """Wait for events, one after the other, each for so many seconds at most."""
    timeout = None if seconds is None else timedelta(seconds=seconds)
    with effects(ctx):
        return [
            await ctx.step.wait_for_event(f"go-{number}", EVENT, key=str(ctx.id), timeout=timeout)
            for number in range(times)
        ]


@job("runs.call", retry=PATIENT, event_poll=POLL)
async def call(ctx: JobContext) -> str:
    """Call a child, and tell how that went."""
    with effects(ctx):
        try:
            return str(await ctx.step.call("child", double, {"number": 4}, queue="children"))
        except ChildFailed as failed:
            return failed.code
