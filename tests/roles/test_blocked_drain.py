"""A drain while a body blocks the worker's loop: the others are told and, in the end, all are abandoned in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from app.domain.state import State
from app.jobs.context import JobContext
from app.jobs.handle import job
from app.lifecycle.drain import DrainNotice
from app.lifecycle.shutdown import ExitCode, Shutdown
from tests.roles.harness import Bench


def becomes(condition: Callable[[], bool], *, by: float) -> None:
    """Wait in a thread until something holds, at most until an instant."""
    pause = threading.Event()
    while not condition() and time.monotonic() < by:
        pause.wait(0.01)


async def test_a_blocked_loop_keeps_no_body_from_being_told_or_abandoned() -> None:
    """Both are done by the heartbeat's thread; the claims are marked before the watchdog ends the process."""
    heard, blocked, release = (threading.Event() for _ in range(3))

    @job("thread.job")
    def thread(ctx: JobContext) -> None:
        while not ctx.signal.aborted:
            heard.wait(0.005)
        heard.set()
        release.wait(20)

    @job("blocks.job")
    async def blocks() -> None:
        blocked.set()
        release.wait(20)

    bench = Bench([thread, blocks])
    shutdown = Shutdown(drain_seconds=1.0, telemetry=bench.telemetry)
    ids = [await bench.enqueue("thread.job", max_attempts=1), await bench.enqueue("blocks.job", max_attempts=1)]
    seen: dict[str, object] = {}
    store = bench.driver._store  # type: ignore[attr-defined] # the store's own rows

    def watch() -> None:
        blocked.wait(10)
        notice: DrainNotice = shutdown.request("SIGTERM")
        seen["heard"] = heard.wait(5)
        seen["held"] = {run.job_type for run in shutdown.status().held}
        becomes(lambda: all(one.is_abandoned for one in store.tokens.values()), by=notice.deadline + 5)
        seen["abandoned"], seen["in_time"] = bench.worker.abandoned, time.monotonic() <= notice.deadline + 2
        seen["marked"] = [one.is_abandoned for one in store.tokens.values()]
        release.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = await shutdown.serve([bench.worker])
    watcher.join()
    assert seen == {
        "heard": True,
        "held": {"thread.job", "blocks.job"},
        "abandoned": 2,
        "in_time": True,
        "marked": [True, True],
    }
    for one in ids:
        assert len(bench.probe.of("worker.drain_abandoned", job_id=str(one))) == 1
    # What comes to its end after all, in a process that is still there, is finished; only the rest was abandoned.
    tally = shutdown.status().tally
    assert tally.completed + tally.abandoned == 2
    assert code == ExitCode.ABANDONED or not tally.abandoned
    assert [(await bench.view(one)).state for one in ids].count(State.DONE) == tally.completed
