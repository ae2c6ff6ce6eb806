"""Actors that do random things to a store, each on a connection that may be cut at any time.

An actor often does not know what became of its call; `Books` keeps what it was told. Used by the stress test.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import asyncpg

from app.domain.audit import Action
from app.domain.edit import JobPatch
from app.domain.errors import DriverUnavailable, JobDuplicate, JobNotFound, JobStateConflict
from app.domain.event import NewEvent
from app.domain.job import ClaimedJob, JobId, WorkerId
from app.domain.outcome import (
    Completed,
    DeadLettered,
    Held,
    Interrupted,
    Outcome,
    Retried,
    SettleAnswer,
    Settlement,
    Snoozed,
    Suspended,
)
from app.domain.retention import Chore, Retention
from app.domain.snapshot import JobTypeDoc
from app.domain.state import DeadReason, State
from app.domain.step import NewWait
from app.drivers.postgres.sqlstate import Contended
from app.drivers.protocol import ClaimRequest, PurgeQuery, QueueShare
from tests.conformance.runs import a_sleep, a_step, an_event, new_event
from tests.postgres.arena import Arena, Seat
from tests.support.audit import an_entry
from tests.support.drivers import ERROR, NAME, QUEUE, new_worker

T = TypeVar("T")

LEASE_MS = 1500
BRIEF = Retention(event=timedelta(seconds=1))
BESIDE_JOBS = [chore for chore in Chore if chore is not Chore.JOBS]  # of those, done ones alone are purged here
EVENT_KEYS = 5
VERSIONS = ("1.0.0", "2.0.0")  # of the workers, and of nobody
PUBLISHED = [JobTypeDoc(name=NAME, code_version=version, document="{}") for version in VERSIONS]
# What a killed backend looks like from the client.
CUT = (
    asyncpg.exceptions.AdminShutdownError,
    asyncpg.exceptions.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    DriverUnavailable,  # as the heartbeat's verbs have it
)
_ACTORS = """
select pid from pg_stat_activity
where datname = current_database() and application_name = 'arena' and pid <> pg_backend_pid()"""
DEADLOCKS = (asyncpg.exceptions.DeadlockDetectedError, asyncpg.exceptions.SerializationError, Contended)


class Books:
    """What the actors were told."""

    def __init__(self) -> None:
        self.claims: dict[JobId, dict[int, int]] = defaultdict(dict)  # claim number by fence
        self.settled: Counter[int] = Counter()  # by fence
        self.completed: Counter[JobId] = Counter()
        self.calls: Counter[str] = Counter()
        self.deadlocks: list[BaseException] = []  # and serialization failures
        self.jobs: list[JobId] = []
        self.deleted: set[JobId] = set()  # or asked to be


class Actor:
    """One connection that does random things; a new one when it is cut."""

    def __init__(self, arena: Arena, books: Books, jobs: list[JobId], *, seed: int, room: int) -> None:
        self.arena = arena
        self.books = books
        self.jobs = jobs
        self.random = random.Random(seed)
        self.room = room
        self.seat: Seat | None = None
        self._came_along: Sequence[ClaimedJob] = ()

    async def call(self, verb: Callable[[Seat], Awaitable[T]]) -> T | None:
        """Run a verb, sometimes in a transaction that is rolled back; None when it is unknown what became of it."""
        try:
            seat = await self._sit()
            self.books.calls["made"] += 1
            if self.random.random() < 0.1:
                self.books.calls["rolled back"] += 1
                await self._in_vain(seat, verb)
            else:
                return await verb(seat)
        except (JobDuplicate, JobStateConflict, JobNotFound):
            self.books.calls["refused"] += 1
        except DEADLOCKS as error:
            self.books.deadlocks.append(error)
        except CUT:
            self.books.calls["cut"] += 1
            self.seat = None
        return None

    async def _in_vain(self, seat: Seat, verb: Callable[[Seat], Awaitable[object]]) -> None:
        transaction = seat.connection.transaction()
        await transaction.start()
        try:
            await verb(seat)
        finally:
            if not seat.connection.is_closed():
                await transaction.rollback()

    async def _sit(self) -> Seat:
        if self.seat is None or self.seat.connection.is_closed():
            self.seat = await self.arena._seat()
        return self.seat

    async def work(self, stop: asyncio.Event) -> None:
        """Be one worker process after another."""
        while not stop.is_set():
            worker = await self.call(lambda seat: seat.driver.register_worker(new_worker(lease_ms=LEASE_MS)))
            if worker is None:
                continue
            for doc in PUBLISHED:
                await self.call(lambda seat, doc=doc: seat.driver.publish_job_types([doc]))  # type: ignore[misc] # bound
            for _ in range(self.random.randint(5, 30)):
                await self._claim_and_settle(worker)
            await self._leave(worker)

    async def operate(self, stop: asyncio.Event) -> None:
        """Cancel, retry, change and delete at random, now and then what was claimed a moment ago."""
        while not stop.is_set():
            lately = list(self.books.claims)[-20:]
            if self.random.random() < 0.2 and lately:
                await self._cancel(self.random.choice(lately))
            elif self.random.random() < 0.3:
                await self._cancel(self.random.choice(self.jobs))
            elif self.random.random() < 0.3:
                event = new_event(key=str(self.random.randint(0, EVENT_KEYS - 1)))
                await self._emit(event)
            elif self.random.random() < 0.4:
                await self._edit(self.random.choice(self.jobs))
            else:
                await self._retry(self.random.choice(self.jobs))

    async def maintain(self, stop: asyncio.Event) -> None:
        """Do what any worker does beside its jobs."""
        ended = PurgeQuery(state=State.DONE, older_than=timedelta(seconds=1), batch=100)
        chores: list[Callable[[Seat], Awaitable[object]]] = [
            lambda seat: seat.driver.reap(self.random.choice((3, 1000))),
            lambda seat: seat.driver.promote(self.random.choice((3, 1000))),
            lambda seat: seat.driver.expire(self.random.choice((3, 1000))),
            lambda seat: seat.driver.purge(ended),
            lambda seat: seat.driver.tidy(self.random.choice(BESIDE_JOBS), BRIEF, batch=20, now=True),
            lambda seat: seat.driver.wake(self.random.choice((3, 1000))),
            lambda seat: seat.driver.sweep_waits(),
            lambda seat: seat.driver.release_due(),
        ]
        while not stop.is_set():
            await self.call(self.random.choice(chores))

    async def _leave(self, worker: WorkerId) -> None:
        match self.random.choice(("surrender", "close", "abandon", "vanish")):
            case "surrender":
                await self.call(lambda seat: seat.driver.surrender(worker))
            case "close":
                await self.call(lambda seat: seat.driver.close_worker(worker))

            case "abandon":
                held = [job.token for job in self._came_along]
                await self.call(lambda seat: seat.abandon(worker, held, timedelta(milliseconds=1)))
        self._came_along = ()

    async def _cancel(self, job_id: JobId) -> None:
        await self.call(lambda seat: seat.driver.cancel(job_id, reason="stress"))

    async def _emit(self, event: NewEvent) -> None:
        await self.call(lambda seat: seat.driver.emit(event))

    async def _edit(self, job_id: JobId) -> None:
        match self.random.choice(("run now", "patch", "patch", "delete")):
            case "run now":
                audit = an_entry(Action.JOB_RUN_NOW, job_id)
                await self.call(lambda seat: seat.driver.run_now(job_id, audit=audit))
            case "patch":
                later = datetime.now(UTC) + timedelta(milliseconds=self.random.randint(-500, 500))
                patch = JobPatch(
                    priority=self.random.choice((None, 0, 5, 9)), run_at=self.random.choice((None, later)), tags=("a",)
                )
                audit = an_entry(Action.JOB_UPDATE, job_id)
                await self.call(lambda seat: seat.driver.patch(job_id, patch, audit=audit))
            case "delete":
                audit = an_entry(Action.JOB_DELETE, job_id)
                self.books.deleted.add(job_id)
                await self.call(lambda seat: seat.driver.delete(job_id, audit=audit))

    async def _retry(self, job_id: JobId) -> None:
        await self.call(lambda seat: seat.driver.retry(job_id))

    async def _claim_and_settle(self, worker: WorkerId) -> None:
        claimed, self._came_along = self._came_along, ()
        if not claimed:
            room = self.random.randint(1, self.room)
            claimed = await self.call(lambda seat: seat.driver.claim(request(worker, room))) or ()
            self._note(claimed)
        if self.random.random() < 0.1:
            await self.call(lambda seat: seat.driver.reconcile(worker, []))
        if self.random.random() < 0.1:
            await self.call(lambda seat: seat.renew(worker, [job.token for job in claimed]))
        kept = [job for job in claimed if self.random.random() < 0.95]
        if kept and self.random.random() < 0.1:
            await self.call(lambda seat: seat.driver.isolate(kept[0].token))
        if kept and self.random.random() < 0.1:
            await self.call(lambda seat: seat.driver.release([kept[0].token], cause="stress"))
        if kept and self.random.random() < 0.5:
            name = f"step {kept[0].token.claim_no}"
            await self.call(lambda seat: seat.driver.record_step(kept[0].token, a_step(name)))
        await self.settle([(job, self._outcome(job)) for job in kept], worker)

    def _note(self, claimed: Sequence[ClaimedJob]) -> None:
        for job in claimed:
            self.books.claims[job.token.job_id][job.token.fence] = job.token.claim_no

    async def settle(self, ends: list[tuple[ClaimedJob, Outcome]], worker: WorkerId | None = None) -> None:
        """Settle, sometimes twice, half the time with a claim of `worker` in the statement; note what was stored."""
        batch = [
            Settlement(token=job.token, outcome=outcome, has_waits=job.token.claim_no > 1) for job, outcome in ends
        ]
        for _ in range(2 if self.random.random() < 0.1 else 1):
            is_fused = self.random.random() < 0.5
            answers = await (self._settle_and_claim(batch, worker) if worker and is_fused else self._settle(batch))
            for settlement, answer in zip(batch, answers, strict=False):
                if answer is SettleAnswer.SETTLED:
                    self.books.settled[settlement.token.fence] += 1
                    self.books.completed[settlement.token.job_id] += isinstance(settlement.outcome, Completed)

    async def _settle(self, batch: list[Settlement]) -> tuple[SettleAnswer, ...]:
        return await self.call(lambda seat: seat.driver.settle(batch)) or ()

    async def _settle_and_claim(self, batch: list[Settlement], worker: WorkerId) -> tuple[SettleAnswer, ...]:
        asked = request(worker, self.random.randint(1, self.room))
        answers, claimed = await self.call(lambda seat: seat.driver.settle_and_claim(batch, asked)) or ((), ())
        self._note(claimed)
        self._came_along = claimed or self._came_along
        return answers

    def _outcome(self, job: ClaimedJob) -> Outcome:
        soon = timedelta(milliseconds=self.random.randint(0, 50))
        return self.random.choice(
            (
                Completed(result='"done"'),
                Completed(),
                Retried(error=ERROR, delay=soon),
                Snoozed(delay=soon),
                Interrupted(cause="drain"),
                Interrupted(cause="drain", delay=soon),
                DeadLettered(error=ERROR, reason=DeadReason.TERMINAL),
                Held(reason="stress"),
                Held(reason="stress", version=self.random.choice(VERSIONS)),
                Suspended(waits=(self._event(job, soon),)),
                Suspended(waits=(a_sleep(f"nap {job.token.claim_no}", delay=soon), self._event(job, 1000 * soon))),
            )
        )

    def _event(self, job: ClaimedJob, within: timedelta) -> NewWait:
        key = str(self.random.randint(0, EVENT_KEYS - 1))
        return an_event(f"event {job.token.claim_no}", 1, key=key, delay=within)


def request(worker: WorkerId, room: int) -> ClaimRequest:
    """Ask for up to `room` jobs of the one queue."""
    share = QueueShare(queue=QUEUE, room=room)
    return ClaimRequest(worker_id=worker, shares=(share,), names=frozenset({NAME}), room=room)


async def kill(arena: Arena, seed: int, stop: asyncio.Event) -> None:
    """Cut a random actor's connection, now and then."""
    dice = random.Random(seed)
    while not stop.is_set():
        rows = await arena.fetch(_ACTORS)
        if rows and dice.random() < 0.05:
            await arena.fetch("select pg_terminate_backend($1)", dice.choice(rows)[0])
