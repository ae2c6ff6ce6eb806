"""The world of one test: a store, a clock that stands still, a client, and workers that run when told to.

Everything in it is the product's own but the clock: jobs are claimed, run, retried and woken by a real worker. Given to
tests by the fixture `env`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar, Unpack

from ..domain.errors import JobFailed, JobStateConflict, JobTimeout
from ..domain.event import Emitted
from ..domain.job import Enqueued, JobId
from ..domain.outcome import OutcomeKind
from ..domain.state import State
from ..drivers.protocol import JobDriver
from ..jobs.admission import Admission
from ..jobs.client import Client, use_client
from ..jobs.handle import JobHandle
from ..jobs.options import EnqueueOptions
from ..jobs.registry import AnyHandle
from ..steps.points import AtPoint, Moment, Point
from ..steps.suspension import Suspension
from .crew import Crew
from .durations import duration_of
from .events import new_event
from .known import Jobs, KitClient, Known, payload_of
from .looks import JobRef, Looks, id_of
from .process import HEARTBEAT, LONG_LEASE, QUICK_HEARTBEAT, SHORT_LEASE, Setup
from .stores import KitStore, MemoryStore

PayloadT = TypeVar("PayloadT")

PATIENCE = timedelta(seconds=10)
_LOOK_SECONDS = 0.002
_LIVE_NOW = frozenset({State.READY, State.RUNNING})


class Env(Looks):
    """The world of one test. Made by `open_env`, or by the fixture `env`."""

    def __init__(
        self,
        store: KitStore,
        driver: JobDriver,
        *,
        jobs: Jobs = (),
        patience: timedelta = PATIENCE,
        visitor: AtPoint | None = None,
    ) -> None:
        super().__init__(driver)
        self.store = store
        self._patience = patience
        self._known = Known(jobs)
        self._limits: list[datetime] = []
        self._started: set[JobId] = set()
        self._errors: dict[JobId, BaseException] = {}
        self._inline = 0
        admission = Admission(now=self.now)
        self._client = KitClient(
            driver, admission=admission, known=self._known, on_limit=self._limited, on_stored=self._stored
        )
        setup = Setup(
            store=store,
            known=self._known,
            client=self._client,
            at=self._passes,
            lease=LONG_LEASE if visitor is None else SHORT_LEASE,
            heartbeat=HEARTBEAT if visitor is None else QUICK_HEARTBEAT,
        )
        self._visitor = visitor
        self.crew = Crew(setup, driver, patience=patience)

    @property
    def client(self) -> Client:
        """Give the client of the test's store. It is current in the test, so that `handle.enqueue` works."""
        return self._client

    @property
    def driver(self) -> JobDriver:
        """Give the store."""
        return self._driver

    def now(self) -> datetime:
        """Give the time: the store's, the worker's and the test's."""
        return self.store.clock.now()

    def handles(self) -> tuple[AnyHandle, ...]:
        """Give the job types that this test has had to do with so far."""
        return tuple(self._known.registry())

    # --- enqueueing ---------------------------------------------------------------------------------------------------

    async def enqueue(
        self,
        handle: JobHandle[PayloadT, Any],
        payload: PayloadT | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> Enqueued:
        """Enqueue a job, as `handle.enqueue` does; a payload without fields may be left out. Raises what that raises.

        Nothing runs yet, except in `inline`.
        """
        with use_client(self._client):
            return await handle.enqueue(payload_of(handle, payload), **options)

    async def emit(self, name: str, key: str, payload: object = None, *, tenant: str = "default") -> Emitted:
        """Emit an event; runs that wait for it become ready. Nothing runs yet.

        Raises:
            RequestInvalid: the name or the key cannot be one.
            ResultInvalid: the payload is nothing that JSON can carry.
        """
        return await self._driver.emit(new_event(name, key, payload, tenant=tenant))

    @contextmanager
    def inline(self) -> Iterator[None]:
        """Have every enqueue run its job at once and raise what its body raised, while the block lasts.

        A job that has to wait for a time, an event or a child of its own is left waiting; time does not move.
        """
        self._inline += 1
        try:
            yield
        finally:
            self._inline -= 1

    # --- running ------------------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Run everything that is ready, and what that makes ready, until nothing is. Time does not move.

        Failures are the jobs' own, as in production: look at them with `job`, `attempts` or `result`.

        Raises:
            JobTimeout: a body has not ended within the patience, 10 s of real time.
        """
        await self.crew.work(but=self._under_way())

    async def start(self, job: JobRef) -> None:
        """Have a worker begin a job, and return while its body runs, so that time can be moved under it.

        Raises:
            JobTimeout: it was not begun within the patience.
            JobStateConflict: it is not ready.
        """
        job_id = id_of(job)
        view = await self.job(job_id)
        if view.state not in _LIVE_NOW:
            raise JobStateConflict(
                f"{view.name} {job_id} is {view.state.value}, it cannot be begun now",
                fix="move time to when it is due with `await env.advance(…)`, or emit what it waits for",
                state=view.state.value,
            )
        self._started.add(job_id)
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._patience.total_seconds()
        while not (await self.crew.has_process()).holds(job_id):
            if (await self.job(job_id)).state not in _LIVE_NOW:
                return
            if loop.time() >= give_up_at:
                raise JobTimeout(f"{view.name} {job_id} was not begun", fix="look whether its queue is paused")
            await asyncio.sleep(_LOOK_SECONDS)
        for _ in range(10):  # turns in which its body gets to its first wait
            await asyncio.sleep(0)

    async def advance(self, by: str | timedelta) -> None:
        """Move time by a duration such as `"3d"`: what becomes due on the way runs, in order, at its own instant.

        Retries, sleeps, ends of waits, deadlines, and the timeouts of bodies begun with `start`. What is ready now runs
        first.

        Raises:
            RequestInvalid: not a duration, or one that goes backwards.
            JobTimeout: as `drain`.
        """
        until = self.now() + duration_of(by)
        await self.drain()
        while (at := await self.next_instant()) is not None and at <= until:
            await self.crew.move(at)
            await self.drain()
        await self.crew.move(until)
        await self.drain()

    async def result(self, job: JobRef) -> Any:  # noqa: ANN401 - whatever the job gives
        """Give a job's result as its handle declares it, after everything ready has run.

        Raises:
            JobFailed: it is dead or cancelled; what its body raised is the cause.
            JobStateConflict: it waits for a time or an event.
            JobNotFound: there is no such job.
        """
        job_id = id_of(job)
        if (await self.job(job_id)).state in _LIVE_NOW:
            await self.drain()
        view = await self.job(job_id)
        if view.state is State.DONE:
            handle = self._known.handle(view.name)
            return view.result if handle is None else handle.result_of(view.result)
        if view.state in {State.DEAD, State.CANCELLED}:
            error = "" if view.error is None else f": {view.error.type}: {view.error.message}"
            raise JobFailed(
                f"{view.name} {job_id} is {view.state.value}{error}", fix="look at `await env.attempts(job)`"
            ) from self._errors.get(job_id)
        raise JobStateConflict(
            f"{view.name} {job_id} is {view.state.value} ({view.state_reason}), it has no result yet",
            fix="move time with `await env.advance(…)`, or emit the event it waits for with `await env.emit(…)`",
            state=view.state.value,
        )

    def error(self, job: JobRef) -> BaseException | None:
        """Give what the body of a job raised last, the exception itself; None when its last attempt raised nothing."""
        return self._errors.get(id_of(job))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _under_way(self) -> frozenset[JobId]:
        """Give the jobs that were begun with `start` and still run."""
        working = [one for one in self.crew.processes if one.has_hands]
        self._started = {job_id for job_id in self._started if any(one.holds(job_id) for one in working)}
        return frozenset(self._started)

    async def next_instant(self) -> datetime | None:
        """Give when the next thing is due: a retry, a sleep, the end of a wait, a deadline, a timer of a run."""
        now = self.now()
        self._limits = [at for at in self._limits if at > now]
        after = await self.crew.next_in()
        # A store looks at its clock in microseconds: what is due a part of one from now is due at the next.
        found = [] if after is None else [now + max(after, timedelta(microseconds=1))]
        return min([*found, *self._limits], default=None)

    def _limited(self, after: timedelta) -> None:
        self._limits.append(self.now() + after)

    async def _passes(self, point: Point) -> None:
        """Keep what bodies raise."""
        if point.moment is Moment.END:
            job_id = JobId(point.job.token.job_id)
            if point.error is None or isinstance(point.error, Suspension):
                self._errors.pop(job_id, None)
            else:
                self._errors[job_id] = point.error
        if self._visitor is not None:
            await self._visitor(point)

    async def _stored(self, job_id: JobId) -> None:
        """Run what was enqueued, in `inline`."""
        if not self._inline:
            return
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._patience.total_seconds()
        while (view := await self.job(job_id)).state in _LIVE_NOW:
            await self.crew.has_process()
            if loop.time() >= give_up_at:
                raise JobTimeout(f"{view.name} {job_id} did not end inline", fix="let its body end")
            await asyncio.sleep(_LOOK_SECONDS)
        error = self._errors.get(job_id)
        if error is not None and view.last_outcome in {OutcomeKind.RETRIED, OutcomeKind.DEAD_LETTERED}:
            raise error

    async def _close(self) -> None:
        await self.crew.stop()


@asynccontextmanager
async def open_env(
    store: KitStore | None = None,
    *,
    jobs: Jobs = (),
    start: datetime | None = None,
    patience: timedelta = PATIENCE,
    visitor: AtPoint | None = None,
) -> AsyncIterator[Env]:
    """Open the world of one test: in memory, or over a store that the caller has made.

    `jobs`: handles, or modules of handles, that workers are to know before anything of them is enqueued.
    `visitor` is called at the points of all attempts; leases are short then.
    """
    store = store or MemoryStore()
    await store.begin(start)
    env = Env(store, await store.driver(), jobs=jobs, patience=patience, visitor=visitor)
    try:
        with use_client(env.client):
            yield env
    finally:
        try:
            await env._close()  # noqa: SLF001 - its own
        finally:
            await store.end()
