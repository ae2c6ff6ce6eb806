"""Everybody at once, and nobody is cut: workers, sweepers, purgers, operators, bulk executors, schedulers, producers.

Each has a connection of its own whose deadlocks are not repeated but noted, as those of `chaos` do; what is done to one
set of jobs at once is the point, not what becomes of them. Schedulers all want to decide the same occurrences.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import asyncpg

from app.domain.bulk import BulkAction
from app.domain.job import JobId
from app.domain.schedule import Declaration, Overlap, Plan, Planned
from app.domain.state import State
from app.drivers.postgres.bulk import PostgresBulk
from app.drivers.postgres.schedules import PostgresSchedules
from app.drivers.protocol import PurgeQuery
from tests.postgres.arena import Arena, Seat
from tests.postgres.chaos import BESIDE_JOBS, BRIEF, PUBLISHED, Actor, Books
from tests.support.bulk import a_bulk
from tests.support.drivers import new_job

T = TypeVar("T")

_MINUTE = timedelta(minutes=1)
_KEYS = 300
_KEPT = 3_000  # jobs that operators choose from: the newest
_SCHEDULES = ("hourly", "nightly")
_ROOM = 20


class Member(Actor):
    """An actor that plays one part; see `chaos` for workers and operators."""

    def __init__(self, arena: Arena, books: Books, jobs: list[JobId], clock: Ticks, *, seed: int) -> None:
        super().__init__(arena, books, jobs, seed=seed, room=_ROOM)
        self._clock = clock

    async def call(self, verb: Callable[[Seat], Awaitable[T]]) -> T | None:
        """Run a verb; on a busy machine one may wait for longer than a statement of ours does, which is no deadlock."""
        try:
            return await super().call(verb)
        except (asyncpg.exceptions.LockNotAvailableError, asyncpg.exceptions.QueryCanceledError):
            self.books.calls["waited too long"] += 1
            return None

    async def produce(self, stop: asyncio.Event) -> None:
        """Enqueue batches whose keys are in the hands of others, too, in any order."""
        while not stop.is_set():
            keys = self.random.sample(range(_KEYS), 10)
            batch = [
                new_job(
                    key=f"k{key}",
                    priority=self.random.randint(0, 9),
                    delay=timedelta(milliseconds=self.random.randint(1, 300)) if key % 4 == 0 else None,
                    max_queue_time=timedelta(milliseconds=self.random.randint(1, 500)) if key % 7 == 0 else None,
                    dedupe_for=timedelta(milliseconds=200) if key % 5 == 0 else None,
                )
                for key in keys
            ]
            answers = await self.call(lambda seat, batch=batch: seat.driver.enqueue_many(batch))  # type: ignore[misc]
            self.jobs.extend(answer.id for answer in answers or () if not answer.deduped)
            del self.jobs[:-_KEPT]

    async def sweep(self, stop: asyncio.Event) -> None:
        """Do what every worker does for those that are gone, and for what is due."""
        verbs: list[Callable[[Seat], Awaitable[object]]] = [
            lambda seat: seat.driver.reap(self.random.choice((3, 100))),
            lambda seat: seat.driver.promote(self.random.choice((3, 100))),
            lambda seat: seat.driver.expire(self.random.choice((3, 100))),
            lambda seat: seat.driver.wake(self.random.choice((3, 100))),
            lambda seat: seat.driver.sweep_waits(),
            lambda seat: seat.driver.release_due(),
        ]
        await self._any_of(verbs, stop)

    async def purge(self, stop: asyncio.Event) -> None:
        """Purge by state, and go round over every kind of rows."""
        states = (State.DONE, State.DEAD, State.CANCELLED)
        verbs: list[Callable[[Seat], Awaitable[object]]] = [
            lambda seat: seat.driver.purge(
                PurgeQuery(state=self.random.choice(states), older_than=timedelta(milliseconds=200), batch=50)
            ),
            lambda seat: seat.driver.tidy(self.random.choice(BESIDE_JOBS), BRIEF, batch=20, now=True),
        ]
        await self._any_of(verbs, stop)

    async def act_on_many(self, stop: asyncio.Event) -> None:
        """Make bulk operations over whatever there is, and step those of anybody."""
        ways = (
            (BulkAction.CANCEL, (State.READY, State.RUNNING, State.SUSPENDED)),
            (BulkAction.RETRY, (State.DEAD, State.CANCELLED)),
            (BulkAction.RUN_NOW, (State.DELAYED, State.SUSPENDED)),
            (BulkAction.DELETE, (State.DONE, State.HELD)),
        )
        while not stop.is_set():
            action, states = self.random.choice(ways)
            bulk = a_bulk(action, *states)
            await self.call(lambda seat, bulk=bulk: _bulk(seat).make(bulk))  # type: ignore[misc] # bound
            for _ in range(5):
                await self.call(lambda seat: _bulk(seat).step(batch=20))

    async def schedule(self, stop: asyncio.Event) -> None:
        """Declare, decide, fire, pause, resume and trim; all want the occurrence that comes next."""
        while not stop.is_set():
            name = self.random.choice(_SCHEDULES)
            match self.random.choice(("declare", "decide", "decide", "decide", "fire", "pause", "resume", "trim")):
                case "declare":
                    declared = [_declaration(each) for each in _SCHEDULES]
                    self.random.shuffle(declared)
                    await self.call(lambda seat, declared=declared: _schedules(seat).declare(declared))  # type: ignore[misc]
                case "decide":
                    plan = self._clock.plan(name, self.random)
                    decided = await self.call(lambda seat, plan=plan: _schedules(seat).decide(plan))  # type: ignore[misc]
                    self._clock.decided += len(decided or ())
                case "fire":
                    job = new_job(key=f"k{self.random.randrange(_KEYS)}")
                    await self.call(
                        lambda seat, name=name, job=job: _schedules(seat).fire(name, job, by="crowd")  # type: ignore[misc]
                    )
                case "pause":
                    await self.call(lambda seat, name=name: _schedules(seat).pause(name, by="crowd"))  # type: ignore[misc]
                case "resume":
                    await self.call(lambda seat, name=name: _schedules(seat).resume(name))  # type: ignore[misc]
                case "trim":
                    await self.call(lambda seat: _schedules(seat).trim(50))

    async def _any_of(self, verbs: Sequence[Callable[[Seat], Awaitable[object]]], stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.call(self.random.choice(verbs))


class Ticks:
    """The occurrence that comes next of each schedule, for all schedulers; no calendar is waited for."""

    def __init__(self) -> None:
        self._next = dict.fromkeys(_SCHEDULES, datetime.now(UTC).replace(second=0, microsecond=0) + _MINUTE)
        self.decided = 0

    def plan(self, name: str, dice: random.Random) -> Plan:
        """Give a plan for the next two minutes; now and then time goes on."""
        if dice.random() < 0.3:
            self._next[name] += _MINUTE
        first = self._next[name]
        planned = tuple(
            Planned(at=first + number * _MINUTE, job=new_job(key=f"k{dice.randrange(_KEYS)}" if number else None))
            for number in range(2)
        )
        overlap = dice.choice((Overlap.SKIP, Overlap.ALLOW))
        return Plan(name=name, digest=_declaration(name).digest, until=planned[-1].at, planned=planned, overlap=overlap)


async def gathered(
    arena: Arena, *, workers: int, sweepers: int, others: int, seconds: float, seed: int
) -> tuple[Books, Ticks]:
    """Let so many of each part at one store for so long; gives what they were told."""
    books, stop, clock, jobs = Books(), asyncio.Event(), Ticks(), list[JobId]()
    books.jobs = jobs
    await arena.driver.publish_job_types(PUBLISHED[:1])
    jobs.extend([await arena.enqueue() for _ in range(20)])
    await _schedules(await arena._seat()).declare([_declaration(name) for name in _SCHEDULES])
    parts = [Member.work] * workers + [Member.sweep] * sweepers
    parts += [Member.purge, Member.operate, Member.act_on_many, Member.schedule, Member.produce] * others
    members = [Member(arena, books, jobs, clock, seed=seed * 1000 + number) for number in range(len(parts))]
    async with asyncio.TaskGroup() as group:
        for member, part in zip(members, parts, strict=True):
            group.create_task(part(member, stop))
        asyncio.get_running_loop().call_later(seconds, stop.set)
    return books, clock


def _bulk(seat: Seat) -> PostgresBulk:
    return PostgresBulk(seat.driver._db)  # type: ignore[attr-defined] # a seat's driver is PostgreSQL's


def _schedules(seat: Seat) -> PostgresSchedules:
    return PostgresSchedules(seat.driver._db)  # type: ignore[attr-defined] # same


def _declaration(name: str) -> Declaration:
    return Declaration(name=name, code_version="1", cron="* * * * *", tz="UTC", document="{}")
