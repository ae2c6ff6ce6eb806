"""A scheduler under test: its store can be held and failed, and tests wait for what it has decided."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from random import Random
from typing import Any

from app.domain.schedule import Decided, OccurrenceOutcome, OccurrenceView, Plan, Standings
from app.drivers.schedules import ScheduleStore, schedules_of
from app.jobs import Schedule, job, schedule
from app.jobs.admission import Admission
from app.observability.metrics import Metrics
from app.observability.probe import Probe
from app.observability.telemetry import Telemetry
from app.scheduler.scheduler import Scheduler, SchedulerOptions
from tests.support.drivers import DriverEnv

MINUTE = timedelta(minutes=1)
NAME = "ticks"
QUICK = timedelta(milliseconds=5)


@job("ticks.note")
async def note(number: int = 0) -> None: ...


def every(cron: str = "* * * * *", **options: Any) -> Schedule:
    given: dict[str, Any] = {"tz": "UTC", **options}
    return schedule(NAME, job=note, cron=cron, **given)


class Gated:
    """A store of schedules whose decisions can be held, counted and failed."""

    def __init__(self, inner: ScheduleStore) -> None:
        self.inner = inner
        self.decisions = 0
        self.looks = 0
        self.errors: list[Exception] = []
        self.gate: asyncio.Event | None = None
        self.held = asyncio.Event()

    def __getattr__(self, verb: str) -> Any:
        return getattr(self.inner, verb)

    async def standings(self, names: Sequence[str]) -> Standings:
        self.looks += 1
        return await self.inner.standings(names)

    async def decide(self, plan: Plan) -> tuple[Decided, ...] | None:
        self.decisions += 1
        if self.errors:
            raise self.errors.pop(0)
        if self.gate is not None:
            self.held.set()
            await self.gate.wait()
        return await self.inner.decide(plan)


class Post:
    """One scheduler and its ear; more of them may share a store."""

    def __init__(self, driver: object, *schedules: Schedule, version: str = "1", trim: timedelta = QUICK) -> None:
        store = schedules_of(driver)
        assert store is not None
        self.store = Gated(store)
        self.telemetry = Telemetry(metrics=Metrics())
        self.probe = Probe(self.telemetry)
        self.scheduler = Scheduler(
            store=self.store,
            schedules=schedules,
            code_version=version,
            admission=Admission(),
            telemetry=self.telemetry,
            roll=Random(7).random,
            options=SchedulerOptions(poll=QUICK, declare=QUICK, trim=trim),
        )

    async def rows(self) -> list[OccurrenceView]:
        """Give what is decided, oldest first."""
        view = await self.store.find(NAME, occurrences=100_000)
        return [] if view is None else list(reversed(view.occurrences))

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(10):
            while not await holds():
                await asyncio.sleep(0.002)

    async def until_decided(self, at: datetime) -> None:
        async def holds() -> bool:
            return any(row.at >= at for row in await self.rows())

        await self.until(holds)

    async def until_looked(self) -> None:
        """Wait until all that is due by now has been looked at."""
        looks = self.store.looks

        async def holds() -> bool:
            return self.store.looks >= looks + 2

        await self.until(holds)

    def value(self, metric: str, **labels: str) -> float | None:
        return self.telemetry.metrics.registry.get_sample_value(metric, labels)


@asynccontextmanager
async def scheduling(
    env: DriverEnv, *schedules: Schedule, version: str = "1", trim: timedelta = QUICK
) -> AsyncIterator[Post]:
    post = Post(env.driver, *schedules, version=version, trim=trim)
    await post.scheduler.start()
    try:
        await post.until_looked()
        yield post
    finally:
        await post.scheduler.stop()


async def to_full_minute(env: DriverEnv) -> datetime:
    """Move the clock to half a minute past a whole one, and give that minute."""
    now = env.now()
    await env.advance(now.replace(second=30, microsecond=0) + MINUTE - now)
    return env.now().replace(second=0)


def fired(rows: list[OccurrenceView]) -> list[datetime]:
    return [row.at for row in rows if row.outcome is OccurrenceOutcome.FIRED]


def skipped(rows: list[OccurrenceView]) -> list[tuple[datetime, str | None]]:
    return [(row.at, row.why) for row in rows if row.outcome is OccurrenceOutcome.SKIPPED]
