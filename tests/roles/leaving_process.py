"""A process with one worker over the memory driver, for tests that send it real signals. Says on stdout what happens.

Run as `python -m tests.roles.leaving_process MODE DRAIN_SECONDS LOOP`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import uvloop

from app.jobs.context import JobContext
from app.jobs.handle import JobHandle, job
from app.lifecycle.main_run import run_process
from app.lifecycle.role import Life, Role
from app.lifecycle.shutdown import Shutdown
from app.observability.logging import LogFormat, open_log
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from tests.roles.harness import QUICK, Bench


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


@job("told")
async def told(ctx: JobContext) -> None:
    reason = await ctx.signal.wait()
    say("told", reason)
    ctx.signal.raise_if_aborted()


@job("deaf")
async def deaf() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            say("deaf to it")


@job("thread")
def thread() -> None:
    threading.Event().wait(60)


@job("blocks")
async def blocks() -> None:
    time.sleep(60)  # noqa: ASYNC251 - the point


@job("pool")
async def pool() -> None:
    """Leaves a thread of the loop's own pool behind, which says something that only its process can flush."""
    await asyncio.to_thread(sys.stdout.write, "unflushed\n")


@job("hung")
async def hung() -> None:
    """Ends when told, but not the thread it started in the loop's own pool."""
    await asyncio.to_thread(threading.Event().wait, 60)


@job("idle")
async def idle() -> None:
    pass


def leave() -> None:
    sys.exit(0)


async def exits() -> None:
    leave()


async def beside(task: asyncio.Task[None]) -> None:
    """Wait for a task, and outlive what it raises."""
    await asyncio.wait({task})
    task.exception()


async def by_task() -> None:
    await beside(asyncio.Task(exits()))


async def by_callback() -> None:
    future = asyncio.get_running_loop().create_future()
    future.add_done_callback(lambda _: leave())
    future.set_result(None)


async def by_thread() -> None:
    """An empty context, as a thread of one's own has it."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def run() -> None:
        asyncio.run_coroutine_threadsafe(exits(), loop).add_done_callback(
            lambda _: loop.call_soon_threadsafe(ended.set)
        )

    threading.Thread(target=run).start()
    await ended.wait()


async def by_timer() -> None:
    asyncio.get_running_loop().call_later(0, leave)


async def by_soon() -> None:
    asyncio.get_running_loop().call_soon(leave)


async def by_stop() -> None:
    asyncio.get_running_loop().stop()


async def by_executor() -> None:
    await asyncio.get_running_loop().shutdown_default_executor()


ESCAPES = {one.__name__: one for one in (by_task, by_callback, by_thread, by_timer, by_soon, by_stop, by_executor)}


@job("escapes")
async def escapes(how: str) -> None:
    await ESCAPES[how]()
    for _ in range(5):
        await asyncio.sleep(0)  # what it left behind has its turn before this attempt ends
    say("escaped", how)


@job("cancels")
async def cancels() -> None:
    """Cancels all there is, where nobody can tell that it was a body."""

    def cancel_all() -> None:
        for task in asyncio.all_tasks():
            task.cancel()

    while not any(task.get_name() == "outlast.watch.worker" for task in asyncio.all_tasks()):
        await asyncio.sleep(0)  # until the process has started
    contextvars.Context().run(asyncio.get_running_loop().call_soon, cancel_all)
    await asyncio.Event().wait()


class Dying(Role):
    """A role that fails once it runs."""

    async def live(self, life: Life) -> None:
        life.running()
        raise ZeroDivisionError


def hear(event: str, facts: Mapping[str, object]) -> None:
    say(event, facts.get("job", facts.get("abandoned", "")))


def main(mode: str, seconds: float, loop: str) -> int:
    log = open_log(log_format=LogFormat.JSON, level="info", stream=sys.stderr)
    telemetry = Telemetry(metrics=Metrics(), log=log)
    telemetry.subscribe(hear)
    shutdown = Shutdown(drain_seconds=seconds, telemetry=telemetry)

    async def run() -> int:
        stall = timedelta(seconds=0.7 if mode == "stall" else 60)
        lease = timedelta(seconds=1.2 if mode == "sleeper" else 3)
        options = replace(QUICK, loop_stall=stall, lease=lease)
        handles: list[JobHandle[Any, Any]] = [told, deaf, thread, blocks, pool, hung, idle, escapes, cancels]
        bench = Bench(handles, options=options, telemetry=telemetry)
        name = {"stall": "blocks", "dying": "idle", "sleeper": "told"}.get(mode, mode)
        if mode in ESCAPES:
            await bench.enqueue("escapes", {"how": mode})
            name = "told"
        await bench.enqueue(name)
        roles: list[Role] = [bench.worker, *([Dying("dying")] if mode == "dying" else [])]
        try:
            return await shutdown.serve(roles)
        finally:
            if mode == "cancels":
                for one in await bench.driver.reap():
                    say("taken over", one.name, one.outcome, one.cause)
            if mode != "by_executor":
                await asyncio.to_thread(int)  # as a process does that stops something which blocks

    atexit.register(say, "the interpreter's own end")
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    return run_process(run, shutdown=shutdown, loop_factory=factory)


if __name__ == "__main__":
    code = main(sys.argv[1], float(sys.argv[2]), sys.argv[3])
    say("exit", code)
    sys.exit(code)
