"""The scheduler role: shows what it declares, and decides occurrences as they come due, beside any number of others.

None leads: the store takes every occurrence once, whoever brings it first. Times are the store's; a scheduler that was
held up, or whose clock is wrong, can be late and never decides twice. Told to leave it decides nothing more, and the
pass in flight is waited for. Built by the composition root.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..domain.retry import RetryPolicy
from ..domain.schedule import DECLARATION_KEPT, Standing
from ..drivers.schedules import ScheduleStore
from ..jobs.admission import Admission
from ..jobs.schedule import Schedule
from ..lifecycle.drain import DrainBudget
from ..lifecycle.role import Life, Role
from ..lifecycle.tasks import first_of, start_task
from ..observability.telemetry import Telemetry
from .planning import due_of

_BACKOFF = RetryPolicy(backoff=timedelta(milliseconds=200), max_backoff=timedelta(seconds=2))
# An instant is over once it has begun; no wake-up comes a moment before it and asks in vain.
_AFTER_INSTANT = timedelta(milliseconds=5)
_TRIM_BATCH = 1000  # rows of one statement
_SOON = timedelta(milliseconds=500)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """A look every `poll` while nothing is due, declarations shown every `declare`, old rows deleted every `trim`."""

    poll: timedelta = timedelta(seconds=5)
    declare: timedelta = DECLARATION_KEPT / 3
    trim: timedelta = timedelta(hours=1)


class Scheduler(Role):
    """Decides the schedules it declares, as long as its declarations are the newest."""

    def __init__(
        self,
        *,
        store: ScheduleStore,
        schedules: tuple[Schedule, ...],
        code_version: str,
        admission: Admission,
        telemetry: Telemetry,
        roll: Callable[[], float],
        options: SchedulerOptions | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        name: str = "scheduler",
    ) -> None:
        super().__init__(name, monotonic=monotonic)
        self._store = store
        self._schedules = schedules
        self._declarations = tuple(each.declaration(code_version=code_version) for each in schedules)
        self._admission = admission
        self._telemetry = telemetry
        self._roll = roll
        self._options = options or SchedulerOptions()
        self._abandoned = 0

    @property
    def abandoned(self) -> int:
        """Give 1 when the last life cut a pass because its time was over."""
        return self._abandoned

    async def live(self, life: Life) -> None:
        """Decide until told to leave, and wait for the pass in flight."""
        self._abandoned = 0
        over = asyncio.Event()
        work = start_task(self._work(life), name="outlast.scheduler.passes")
        work.add_done_callback(lambda _: over.set())
        life.running()
        self._telemetry.scheduler_started(len(self._schedules))
        try:
            await first_of(life.is_leaving, over)
            if not await life.budget.wait(over, until=_abandon_at):
                self._abandoned = 1
        finally:
            life.idle()
            work.cancel()
            await asyncio.wait({work})
        if not work.cancelled():
            work.result()
        self._telemetry.scheduler_stopped()

    async def _work(self, life: Life) -> None:
        failures, is_start = 0, True
        declare_at = trim_at = self._monotonic()
        while not life.is_leaving.is_set():
            try:
                # Shown first: after a long sleep of this process others may have forgotten what it declares.
                if self._monotonic() >= declare_at:
                    await self._store.declare(self._declarations, is_start=is_start)
                    is_start = False
                    declare_at = self._monotonic() + self._options.declare.total_seconds()
                pause = await self._pass(life)
                # A full batch: more is old, and goes after the next pass.
                is_due = self._monotonic() >= trim_at and not life.is_leaving.is_set()
                if is_due and await self._store.trim(_TRIM_BATCH) < _TRIM_BATCH:
                    trim_at = self._monotonic() + self._options.trim.total_seconds()
            except Exception as error:  # noqa: BLE001 - said, and done again after a pause
                self._telemetry.schedule_pass_failed(error)
                failures += 1
                pause = _BACKOFF.delay_after(failures, self._roll())
            else:
                failures = 0
            await first_of(life.is_leaving, within=pause.total_seconds())

    async def _pass(self, life: Life) -> timedelta:
        """Decide all that is due; gives how long nothing will be."""
        standings = await self._store.standings([each.name for each in self._schedules])
        wait, lag, failure = self._options.poll, timedelta(), None
        for schedule, declaration in zip(self._schedules, self._declarations, strict=True):
            standing = standings.by_name.get(schedule.name)
            if standing is None or standing.digest != declaration.digest:
                continue  # another version's is newer: that is its to decide
            if life.is_leaving.is_set():
                break
            try:
                first, is_decided = await self._decide(schedule, standing, standings.now)
            except Exception as error:  # noqa: BLE001 - raised below; one schedule's trouble is not the others'
                failure = failure or error
                continue
            lag = max(lag, standings.now - first)
            soon = _SOON if not is_decided else first - standings.now + _AFTER_INSTANT
            wait = min(wait, max(soon, _AFTER_INSTANT))
        self._telemetry.schedules_seen(lag)
        if failure is not None:
            raise failure
        return wait

    async def _decide(self, schedule: Schedule, standing: Standing, now: datetime) -> tuple[datetime, bool]:
        """Decide what is due of one schedule; gives the first instant nobody had decided, and whether all is well."""
        due = due_of(schedule, standing, now, lambda: schedule.new_job(self._admission))
        if due is None:
            return next(schedule.cron.after(standing.watermark), now + self._options.poll), True
        decided = await self._store.decide(due.plan)
        if decided is None:
            return due.first, False  # somebody else is at it, or it has just changed
        self._telemetry.schedule_decided(schedule.name, schedule.job.name, decided, is_cut=due.is_cut)
        return due.first, True


def _abandon_at(budget: DrainBudget) -> float | None:
    return budget.abandon_at
