"""The workers of a test: started when there is work, looked at until there is none, moved through time together.

There is one at a time, as a rule; another comes when job types become known that it does not have, or when it was
killed, held or told to leave. Driven by `env`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime, timedelta

from ..domain.errors import JobTimeout
from ..domain.job import JobId
from ..domain.state import State
from ..drivers.protocol import JobDriver
from ..drivers.reading import ListQuery
from .process import DRAIN_SECONDS, LONG_LEASE, Process, Setup

_FIRST_LOOK_SECONDS = 0.0005
_LONGEST_LOOK_SECONDS = 0.02
_LONGEST_MOVE = LONG_LEASE / 2
_TELL_SECONDS = 0.25  # of real time for a body that was told or cancelled, before its time is moved again
_UNWINDS_SECONDS = 0.05
_PAGE = 200


class Crew:
    """The processes of one `Env`. `driver` is the test's own way to the store; `on_look` is called at each look."""

    def __init__(self, setup: Setup, driver: JobDriver, *, patience: timedelta) -> None:
        self.setup = setup
        self.processes: list[Process] = []
        self._driver = driver
        self._patience = patience
        self._moved = timedelta()
        self._one_start = asyncio.Lock()
        self.on_look: Callable[[], Awaitable[None]] | None = None

    @property
    def at_work(self) -> Process | None:
        """Give the process that takes new work, if there is one."""
        return next((one for one in reversed(self.processes) if one.has_hands), None)

    # --- work ---------------------------------------------------------------------------------------------------------

    async def work(self, *, but: Collection[JobId] = ()) -> None:
        """Run everything that is ready until nothing is; jobs in `but` may go on running.

        Raises:
            JobTimeout: a body did not end within the patience.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._patience.total_seconds()
        pause = _FIRST_LOOK_SECONDS
        while not await self._looks_idle(but):
            await self.has_process()
            if loop.time() >= give_up_at:
                raise self._impatient(but)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_LOOK_SECONDS)

    async def _looks_idle(self, but: Collection[JobId]) -> bool:
        if self.on_look is not None:
            await self.on_look()
        return await self.is_idle(but)

    async def is_idle(self, but: Collection[JobId] = ()) -> bool:
        """Say whether nothing runs and nothing can be begun; does what is due on the way."""
        left_out = {str(job_id) for job_id in but}
        if self._held() - left_out:
            return False
        if await self._do_what_is_due() or await self._has_work(left_out):
            return False
        return not self._held() - left_out

    async def has_process(self) -> Process:
        """Have a process that knows all there is to know; one that does not is stopped, or left to end its work."""
        async with self._one_start:
            process = self.at_work
            if process is not None and process.knew == self.setup.known.changes:
                return process
            if process is not None and not process.held():
                self.processes.remove(process)
                await process.stop()
            fresh = Process(self.setup, await self._driver_of(process))
            self.processes.append(fresh)
            await fresh.start()
            return fresh

    async def _driver_of(self, before: Process | None) -> JobDriver:
        """Give the driver of a process: that of the one whose place it takes, or one of its own."""
        return await self.setup.store.driver() if before is None else before.driver

    def _held(self) -> set[str]:
        working = [one for one in self.processes if one.machine.is_up]
        return {job_id for one in working for job_id in one.held()}

    async def _has_work(self, but: Collection[str]) -> bool:
        stats = await self._driver.stats()
        if not stats.by_state.get(State.READY) and not stats.by_state.get(State.RUNNING):
            return False
        paused = {queue.name for queue in stats.queues if queue.paused_at is not None}
        for name in self.setup.known.names:
            query = ListQuery(states=frozenset({State.READY, State.RUNNING}), name=name, limit=_PAGE)
            for view in (await self._driver.list(query)).items:
                if str(view.id) not in but and not (view.queue in paused and view.state is State.READY):
                    return True
        return False

    async def _do_what_is_due(self) -> bool:
        """Promote, wake, expire and release what is due, as any worker would sooner or later; True if any was."""
        due, now = await self._driver.due(), timedelta()
        did = False
        if due.must_expire:
            did |= bool(await self._driver.expire())
        if due.wake_in is not None and due.wake_in <= now:
            did |= bool(await self._driver.wake())
        if due.promote_in is not None and due.promote_in <= now:
            did |= bool(await self._driver.promote())
        if due.must_release:
            did |= bool(await self._driver.release_due())
        return did

    def _impatient(self, but: Collection[JobId]) -> JobTimeout:
        skip = {str(job_id) for job_id in but}
        running = [f"{run.job_type} {run.job_id}" for one in self.processes for run in one.worker.held()]
        names = ", ".join(name for name in running if name.rpartition(" ")[2] not in skip)
        return JobTimeout(
            f"after {self._patience.total_seconds():g} s there is still work: {names or 'jobs that wait for a worker'}",
            fix="let the bodies end; a job that is to run while time is moved is begun with `await env.start(job)`",
        )

    # --- time ---------------------------------------------------------------------------------------------------------

    async def next_in(self) -> timedelta | None:
        """Give the time to the next thing that is due: a retry, a sleep, the end of a wait, a timer of a run."""
        due = await self._driver.due()
        ins = [due.promote_in, due.wake_in, *(one.timers.next_in() for one in self.processes if one.has_hands)]
        return min((max(one, timedelta()) for one in ins if one is not None), default=None)

    async def move(self, to: datetime) -> None:
        """Move the clock, the leases with it, and let the timers of runs go off in order."""
        store = self.setup.store
        if self.setup.lease < LONG_LEASE and store.clock.now() < to:
            await self._retire()
        while store.clock.now() < to:
            target = min(to, store.clock.now() + _LONGEST_MOVE)
            self._moved += target - store.clock.now()
            await store.move(target)
            if self._moved >= _LONGEST_MOVE / 2:
                self._moved = timedelta()
                for one in self.processes:
                    if one.has_hands:
                        await one.renew()
        await self.ring()

    async def ring(self) -> None:
        """Let timers that are due go off; what they end gets a moment of real time to do so."""
        working = [one for one in self.processes if one.machine.is_up]
        if not sum(one.timers.go_off() for one in working):
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + _TELL_SECONDS
        before = self._held()
        while self._held() >= before and before and loop.time() < until:  # noqa: ASYNC110 - bodies end when they like
            await asyncio.sleep(_FIRST_LOOK_SECONDS)

    async def _retire(self) -> None:
        """Stop processes that have nothing in hand: time is about to pass their leases."""
        for one in list(self.processes):
            if one.has_hands and not one.held():
                self.processes.remove(one)
                await one.stop()

    # --- the end ------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop every process; bodies that still run are cut off as by a drain whose time is over."""
        processes, self.processes = self.processes, []
        for one in processes:
            one.machine.revive()
        for one in processes:
            await self._stop(one)

    async def _stop(self, process: Process) -> None:
        """Stop one: bodies are told, cancelled and given up as by a drain, whose time passes here at once."""
        if process.held():
            clock, left = self.setup.store.clock, timedelta(seconds=DRAIN_SECONDS)
            process.drain("the end of the test")
            await self._are_gone(process)
            while process.held() and left > timedelta():
                step = min(max(process.timers.next_in() or left, timedelta(microseconds=1)), left)
                clock.advance(step)
                left -= step
                process.timers.go_off()
                await self._are_gone(process)
            process.remind()
        await process.stop()

    async def _are_gone(self, process: Process) -> None:
        """Give bodies that were told or cancelled a moment of real time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _UNWINDS_SECONDS
        while process.held() and loop.time() < until:  # noqa: ASYNC110 - bodies end when they like
            await asyncio.sleep(_FIRST_LOOK_SECONDS)
