"""Runs a process's coroutine under its shutdown's signals, and ends the process when its teardown would wait for ever.

Called by the composition root; everything about leaving is `shutdown`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .loop_run import closing, run_until_done
from .shutdown import ExitCode, Shutdown


def run_process(
    main: Callable[[], Coroutine[Any, Any, int]],
    *,
    shutdown: Shutdown,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> int:
    """Run a process's coroutine under the shutdown's signals and give its exit code, or end the process with it."""
    runner = asyncio.Runner(loop_factory=loop_factory)
    with shutdown.installed(), closing(runner, on_left=shutdown.loop_left):
        # The loop's own would be waited for without a bound, with whatever runs in it.
        threads = ThreadPoolExecutor(thread_name_prefix="outlast.default")
        runner.get_loop().set_default_executor(threads)
        try:
            task = run_until_done(runner.get_loop(), main(), on_left=shutdown.loop_left)
            code = ExitCode.LOOP_DIED if task.cancelled() else task.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        shutdown.finish(code)
    return code
