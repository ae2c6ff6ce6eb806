"""Jobs to measure with, and one worker process that runs them: `python -m benchmarks.work URL CONCURRENCY KIND`.

Its jobs do nothing (`noop`), under a limit of one (`one`) or of a thousand (`wide`) or within a rate (`rated`), take
five milliseconds (`brief`), have five steps (`steps`), wait for an hour (`naps`), or (`notes`) note when their bodies
begin, by the clock all processes share; it prints that when it leaves.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import string
import sys
import time
from datetime import timedelta

import uvloop
from uuid_utils.compat import uuid7

from app.domain.job import JobId, NewJob
from app.drivers.protocol import JobDriver
from app.jobs import JobContext, job
from app.jobs.registry import Registry
from app.lifecycle.heap import settle_heap
from app.lifecycle.role import Role
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from app.worker.options import WorkerOptions
from app.worker.worker import Worker

from .bed import driver_on
from .jobs import Nothing, brief, five_steps, nap, noop, one, rated, wide

NAME = "bench.noop"
_KINDS = {"noop": noop, "steps": five_steps, "naps": nap, "one": one, "wide": wide, "rated": rated, "brief": brief}


def new_jobs(count: int, *, padding: int = 0, priority: int = 5) -> list[NewJob]:
    """Make jobs with a payload of about twenty bytes, or `padding` bytes more."""
    tail = "" if not padding else f', "padding": "{_noise(padding)}"'
    return [
        NewJob(
            id=JobId(uuid7()),
            name=NAME,
            priority=priority,
            payload=f'{{"number": {number:07d}1{tail}}}'.replace(": 0", ": 1"),
        )
        for number in range(count)
    ]


def _noise(length: int) -> str:
    """Give text that does not compress, the same every time."""
    return "".join(random.Random(length).choices(string.ascii_letters + string.digits, k=length))


def build_worker(driver: JobDriver, concurrency: int, *, registry: Registry | None = None) -> Worker:
    """Build a worker with everything on that a production worker has on, logging apart."""
    return Worker(
        driver=driver,
        registry=registry or Registry([noop]),
        options=WorkerOptions(
            concurrency=concurrency, code_version="bench", host="bench", pid=os.getpid(), sweep=timedelta(seconds=5)
        ),
        telemetry=Telemetry(metrics=Metrics()),
        roll=random.Random(1).random,
    )


async def _serve(url: str, concurrency: int, kind: str) -> None:
    leave = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave.set)
    began: dict[str, float] = {}

    @job(NAME)
    async def note(ctx: JobContext, payload: Nothing) -> None:
        began[str(ctx.id)] = time.perf_counter()

    async with driver_on(url) as driver:
        worker: Role = build_worker(driver, concurrency, registry=Registry([_KINDS.get(kind, note)]))
        await worker.start()
        settle_heap()
        print("ready", flush=True)
        await leave.wait()
        await worker.stop()
    if kind == "notes":
        print(json.dumps(began), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
