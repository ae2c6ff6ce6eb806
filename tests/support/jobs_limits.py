"""Limited jobs that say when their bodies really run. Loaded by workers that tests start."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta

from app.jobs import JobContext, Limit, Rate, RetryPolicy, job
from tests.support.jobs_faults import effects

# A job here may be killed at every turn: none is to end as a poison job.
STURDY = RetryPolicy(max_attempts=50, max_crashes=50, backoff=timedelta(milliseconds=20), jitter="none")

# How many of `limits.many` a process declares: two of one fleet may differ.
MANY = "TESTS_LIMIT"


@job("limits.one", retry=STURDY, limits=[Limit(1)])
async def one(ctx: JobContext, seconds: float = 0.1) -> None:
    """Run alone among its kind, and heed what it is told."""
    with effects(ctx):
        await asyncio.sleep(seconds)


@job("limits.thread", retry=STURDY, limits=[Limit(1)])
def thread(ctx: JobContext, seconds: float = 0.1) -> None:
    """Do the same in a thread, which nothing ends."""
    with effects(ctx):
        time.sleep(seconds)


@job("limits.keyed", retry=STURDY, limits=[Limit(2, key="{key}")], rate=Rate(1_000, per=timedelta(seconds=1)))
async def keyed(ctx: JobContext, key: str, seconds: float = 0.05) -> None:
    """Two at a time of each key."""
    with effects(ctx):
        await asyncio.sleep(seconds)


@job("limits.many", retry=STURDY, limits=[Limit(int(os.environ.get(MANY, "3")))])
async def many(ctx: JobContext, seconds: float = 0.05) -> None:
    """As many at a time as this process was told."""
    with effects(ctx):
        await asyncio.sleep(seconds)


@job("limits.rated", retry=STURDY, rate=Rate(5, per=timedelta(seconds=1)))
async def rated(ctx: JobContext, seconds: float = 0.3) -> None:
    """Begin five times a second."""
    with effects(ctx):
        await asyncio.sleep(seconds)


@job("limits.by_function", retry=STURDY, limits=[Limit(1, key=lambda given: str(given.key))])
async def by_function(ctx: JobContext, key: str, seconds: float = 0.0) -> None:
    """One at a time of each key, which only code can tell."""
    with effects(ctx):
        await asyncio.sleep(seconds)
