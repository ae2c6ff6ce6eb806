"""Two drivers under one command: whatever is asked of both must be answered alike by both.

Ids of jobs are minted by the caller and so are the same on both; ids of workers and fences of claims are each store's
own and are compared by what they stand for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeAlias, TypeVar, cast

from app.domain.clock import ManualClock
from app.domain.errors import OutlastError
from app.domain.event import EventQuery
from app.domain.job import ClaimedJob, ClaimToken, JobId, RunId, WorkerId
from app.domain.snapshot import AttemptView, JobView, QueueView, Stats, WorkerView
from app.domain.step import RunHistory
from app.drivers.reading import ListQuery
from tests.support.drivers import DriverEnv, MemoryEnv, PostgresEnv

T = TypeVar("T")

START = datetime(2030, 1, 1, tzinfo=UTC)


class Pair(Generic[T]):
    """One thing as each store knows it, the reference's first."""

    def __init__(self, memory: T, postgres: T) -> None:
        self.of = (memory, postgres)

    @property
    def memory(self) -> T:
        return self.of[0]


class Side:
    """One of the two: its environment, and its own words for things both know."""

    def __init__(self, env: DriverEnv, index: int) -> None:
        self.env = env
        self.driver = env.driver
        self._index = index

    def own(self, pair: Pair[T]) -> T:
        return pair.of[self._index]


Command: TypeAlias = Callable[[Side], Awaitable[object]]


class Twins:
    """The memory driver beside the PostgreSQL driver, both empty, their clocks at the same instant."""

    def __init__(self, runner: asyncio.Runner, second: PostgresEnv | MemoryEnv) -> None:
        self._runner = runner
        memory = MemoryEnv(ManualClock(START))
        self.sides = (Side(memory, 0), Side(second, 1))
        self.workers: list[Pair[WorkerId]] = []
        self._runs: tuple[dict[RunId, int], ...] = ({}, {})
        if isinstance(second, PostgresEnv):
            self.run(_emptied(second))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def now(self) -> datetime:
        return self.sides[0].env.now()

    def ask(self, command: Command) -> object:
        """Give a command to both and demand one answer, which is given in the reference's words."""
        memory, postgres = self.run(self._answers(command))
        self._same(memory, postgres)
        return memory

    def register(self, command: Callable[[Side], Awaitable[WorkerId]]) -> None:
        """Register a worker with both."""
        memory, postgres = self.run(self._answers(command))
        self.workers.append(Pair(cast("WorkerId", memory), cast("WorkerId", postgres)))

    def claim(self, command: Callable[[Side], Awaitable[tuple[ClaimedJob, ...]]]) -> list[Pair[ClaimToken]]:
        """Let both claim, demand the same jobs in the same order, and give their tokens."""
        memory, postgres = self.run(self._answers(command))
        self._same(memory, postgres)
        claimed = zip(cast("tuple[ClaimedJob, ...]", memory), cast("tuple[ClaimedJob, ...]", postgres), strict=True)
        return [Pair(first.token, second.token) for first, second in claimed]

    def advance(self, by: timedelta) -> None:
        """Move both clocks."""
        for side in self.sides:
            self.run(side.env.advance(by))

    def everything(self, job_ids: list[JobId]) -> tuple[Stats, list[JobView], dict[JobId, RunHistory]]:
        """Demand that everything that can be read reads the same, and give counts, jobs, and runs that have begun."""
        seen = cast("tuple[Any, ...]", self.ask(lambda side: _read(side, job_ids)))
        self._ages()
        views = [view for view in seen[1] if view is not None]
        begun = [view.id for view in views if _has_begun(view)]
        return seen[0], views, {job_id: run.history for job_id, run in zip(begun, seen[2], strict=True)}

    def comparable(self, value: object, side: int) -> object:
        """Give an answer without what each store is free to choose."""
        match value:
            case tuple() if hasattr(value, "_asdict"):
                return {name: self._field(name, each, side) for name, each in value._asdict().items()}
            case tuple() | list():
                return [self.comparable(each, side) for each in value]
            case frozenset():
                return {self.comparable(each, side) for each in value}
            case OutlastError():
                return {"error": value.code} | {name: str(fact) for name, fact in value.details.items()}
            case WorkerView():
                named = {f.name: getattr(value, f.name) for f in fields(value)}
                return named | {"id": self._place(value.id, side)}
            case _ if is_dataclass(value) and not isinstance(value, type):
                return {f.name: self._field(f.name, getattr(value, f.name), side) for f in fields(value)}
            case _:
                return value

    def _same(self, memory: object, postgres: object) -> None:
        different = list(differences(self.comparable(memory, 0), self.comparable(postgres, 1)))
        assert not different, "\n".join(different)

    def _field(self, name: str, value: object, side: int) -> object:
        match name:
            case "worker_id" if value is not None:
                return self._place(cast("WorkerId", value), side)
            case "fence" | "oldest_ready_seconds" | "seq":  # of numbers only the order counts, which is that of a list
                return None
            case "oldest_snapshot":  # a server's own
                return None
            case "run_id":
                return self._run(cast("RunId", value), side)
            case _:
                return self.comparable(value, side)

    def _run(self, run: RunId, side: int) -> int:
        """Give a run's place in the order they were first seen in: what a fresh run is called is each store's own."""
        return self._runs[side].setdefault(run, len(self._runs[side]))

    def _place(self, worker: WorkerId, side: int) -> WorkerId:
        """Give a worker's place in the order of registration."""
        return WorkerId([pair.of[side] for pair in self.workers].index(worker))

    async def _answers(self, command: Command) -> list[object]:
        answers: list[object] = []
        for side in self.sides:
            try:
                answers.append(await command(side))
            except OutlastError as error:
                answers.append(error)
        return answers

    def _ages(self) -> None:
        """A store may think a ready job older than it is ready, never younger: the age is there to be alerted on."""
        memory, postgres = self.run(self._answers(lambda side: side.driver.queues()))
        for mine, theirs in zip(
            cast("tuple[QueueView, ...]", memory), cast("tuple[QueueView, ...]", postgres), strict=True
        ):
            assert (mine.oldest_ready_seconds is None) == (theirs.oldest_ready_seconds is None)
            assert (mine.oldest_ready_seconds or 0) <= (theirs.oldest_ready_seconds or 0)


async def _emptied(postgres: PostgresEnv) -> None:
    await postgres.empty()
    await postgres.set_clock(START)


def differences(memory: object, postgres: object, at: str = "") -> Iterator[str]:
    """Name every place at which two answers differ."""
    match memory, postgres:
        case dict(), dict() if memory.keys() == postgres.keys():
            for name in memory:
                yield from differences(memory[name], postgres[name], f"{at}.{name}")
        case list(), list() if len(memory) == len(postgres):
            for place, (mine, theirs) in enumerate(zip(memory, postgres, strict=True)):
                yield from differences(mine, theirs, f"{at}[{place}]")
        case _ if memory != postgres:
            yield f"{at}: memory {memory!r}, postgres {postgres!r}"
        case _:
            pass


def _has_begun(view: JobView) -> bool:
    """Say whether a job's run can hold anything: it was claimed, or may be a fork."""
    return view.counters.claim_no > 0 or view.parent_id is not None


async def _read(side: Side, job_ids: list[JobId]) -> tuple[object, ...]:
    driver = side.driver
    views = [await driver.describe(job_id) for job_id in job_ids]
    ledgers: list[tuple[AttemptView, ...]] = [await driver.attempts(job_id) for job_id in job_ids]
    return (
        await driver.stats(),
        views,
        [await driver.run(view.id) for view in views if view is not None and _has_begun(view)],
        await driver.events(EventQuery(limit=200)),
        ledgers,
        await driver.list(ListQuery(limit=200)),
        await driver.dead_letters(),
        await driver.workers(),
        await driver.finished_among(job_ids),
    )
