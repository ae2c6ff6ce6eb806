"""One crash at one point of a run: what is done when the point is reached, and what the world does afterwards.

A visitor of the points of attempts. Driven by `crash`, once per run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

from ..domain.errors import RequestInvalid
from ..domain.job import ClaimToken, JobId, WorkerId
from ..jobs.registry import AnyHandle
from ..steps.points import Moment, Point
from .env import Env
from .machine import Machine, current_machine
from .process import SHORT_LEASE, Process
from .report import Crash, Spot

_LOOK_SECONDS = 0.001
_ALONE_SECONDS = 0.25  # of real time for a body that goes on while nothing else of its worker does
_TOLD_SECONDS = 5.0  # of real time until a worker has noticed that its lease is gone
_OBEYS_SECONDS = 0.1  # of real time for a body that was told to stop, before a drain's own time passes


class Survey:
    """Notes the points that a run passes, and the job types it had to do with; the visitor of the undisturbed run."""

    def __init__(self) -> None:
        self.job_id: JobId | None = None
        self.spots: list[Spot] = []
        self.jobs: Sequence[AnyHandle] = ()
        self._passed: Counter[tuple[Moment, str | None]] = Counter()

    async def __call__(self, point: Point) -> None:
        """Note a point."""
        self.passes(point)

    def passes(self, point: Point) -> Spot | None:
        """Give the spot of a point; None when it is another job's."""
        if self.job_id != point.job.token.job_id:
            return None
        key = (point.moment, point.step)
        self._passed[key] += 1
        spot = Spot(*key, self._passed[key])
        self.spots.append(spot)
        return spot


class Strike(Survey):
    """Crashes a run once, when it passes a spot."""

    def __init__(self, spot: Spot, crash: Crash) -> None:
        super().__init__()
        self._spot = spot
        self._crash = crash
        self._env: Env | None = None
        self._process: Process | None = None
        self._gate: asyncio.Future[None] | None = None
        self._struck: ClaimToken | None = None
        self._has_ended = asyncio.Event()  # the body of the attempt that was struck
        self._is_over = False
        self._waits_since: float | None = None

    def attend(self, env: Env) -> None:
        """Do what the world does afterwards whenever the workers of this env are looked at."""
        self._env = env
        env.crew.on_look = self._look

    async def __call__(self, point: Point) -> None:
        """Strike, when this is the point."""
        token = point.job.token
        if token == self._struck and point.moment is Moment.END:
            self._has_ended.set()
        if self._process is not None or self.passes(point) != self._spot:
            return
        process = self._process = self._process_of(current_machine())
        self._struck = token
        if point.moment is Moment.END:
            self._has_ended.set()
        if process is None:
            return  # `finish` says so: an error raised here would be the body's
        match self._crash:
            case Crash.KILLED:
                await self._kill(process, point)
            case Crash.LEASE_LOST:
                await self._lose(process, point)
            case Crash.SIGTERM:
                process.drain("SIGTERM")
            case Crash.TWICE:
                self._gate = asyncio.get_running_loop().create_future()
                process.machine.hold()
                await self._gate

    async def finish(self) -> None:
        """Let the first of two workers go on, once the other has done the job; and let it end.

        Raises:
            RequestInvalid: the crash has not happened: the job does not do the same in every run.
        """
        process = self._process
        if process is None:
            raise RequestInvalid(
                f"a run did not come {self._spot}, where an undisturbed one had been",
                fix="test a job whose steps are the same in every run; leave chance and time out of what decides them",
            )
        if self._gate is None:
            return
        process.machine.let_one_go(self._gate)
        try:
            async with asyncio.timeout(_ALONE_SECONDS):
                await self._has_ended.wait()
        except TimeoutError:
            pass  # it waits for something that is stopped, or for long: the rest goes on with it
        process.machine.let_go()
        loop = asyncio.get_running_loop()
        until = loop.time() + _TOLD_SECONDS
        while process.held() and loop.time() < until:
            await asyncio.sleep(_LOOK_SECONDS)
            await self._pass_time(process)

    # --- when the point is reached, on the worker's machine -----------------------------------------------------------

    async def _kill(self, process: Process, point: Point) -> None:
        if point.session is not None:
            # What the database does when a process is gone; the session may be on an engine of the caller's.
            await cast("Any", point.session).rollback()
        await process.machine.die()

    async def _lose(self, process: Process, point: Point) -> None:
        await self._world.driver.surrender(_id_of(process))
        loop = asyncio.get_running_loop()
        until = loop.time() + _TOLD_SECONDS
        while point.signal.first is None and loop.time() < until:  # noqa: ASYNC110 - the worker finds out by itself
            await asyncio.sleep(_LOOK_SECONDS)

    # --- afterwards, in the test --------------------------------------------------------------------------------------

    async def _look(self) -> None:
        process = self._process
        if process is None or self._is_over:
            return
        match self._crash:
            case Crash.KILLED if process.machine.is_dead:
                self._is_over = True
                await self._world.crew.setup.store.cut(process.driver)
                await self._world.crew.move(self._world.now() + SHORT_LEASE + timedelta(seconds=1))
                await self._world.driver.reap()
            case Crash.TWICE:
                self._is_over = True
                await self._world.driver.surrender(_id_of(process))
            case Crash.LEASE_LOST if self._has_ended.is_set():
                self._is_over = True
            case Crash.LEASE_LOST:
                await self._pass_time(process)
            case Crash.SIGTERM if process.held():
                await self._pass_time(process)
            case Crash.SIGTERM:
                self._is_over = True
                await process.stop()
            case _:
                pass

    async def _pass_time(self, process: Process) -> None:
        """Move time to the next timer of a process, when a body that was told to stop has not done so for a while."""
        loop = asyncio.get_running_loop()
        if self._waits_since is None:
            self._waits_since = loop.time()
        left = process.timers.next_in()
        if left is None or loop.time() - self._waits_since < _OBEYS_SECONDS:
            return
        self._waits_since = loop.time()
        await self._world.crew.move(self._world.now() + max(left, timedelta(microseconds=1)))
        process.timers.go_off()
        process.remind()

    def _process_of(self, machine: Machine | None) -> Process | None:
        return next((one for one in self._world.crew.processes if one.machine is machine), None)

    @property
    def _world(self) -> Env:
        if self._env is None:
            raise AssertionError("asked before it attends")
        return self._env


def _id_of(process: Process) -> WorkerId:
    worker_id = process.worker.worker_id
    if worker_id is None:
        raise AssertionError("asked before the worker was registered")
    return worker_id
