"""The way from code into a store: a driver, the rules of admission, and the client that is current.

A client is made by whoever composes the process and put in place with `use_client`; handles find it there. Nothing
is current by default.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from copy import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ..domain.errors import DriverUnavailable, OutboxNoTx, RequestInvalid
from ..domain.job import Enqueued, JobId, NewJob
from ..domain.outbox import OutboxId, StagedJob
from ..domain.snapshot import JobView
from ..drivers.outbox import Stager, outbox_of
from ..drivers.protocol import JobDriver
from ..steps.repeat import until_known
from .admission import Admission
from .callbacks import check_callbacks
from .jobtype import JobType
from .request import EnqueueRequest
from .results import Results

# What each call to the store is made inside of: a run holds its own cancellation back there.
Guard: TypeAlias = Callable[[], AbstractContextManager[None]]
AnswerT = TypeVar("AnswerT")

MOST_AT_ONCE = 50_000
_ADMITTED_IN_A_ROW = 500  # some 10 to 50 ms of work, then the loop gets its turn

# A context variable, though what a call does hangs on it: it is set for one block, or for the context
# of one body, so that two clients in a process stay apart, which a module-level one would not do.
_CURRENT: ContextVar[_Current | None] = ContextVar("outlast.client", default=None)


class _Current(NamedTuple):
    client: Client
    session: Callable[[], object | None] | None


class Client:
    """Enqueues through one driver. `enqueued_by` is attribution for requests that name nobody.

    `stager` stages jobs in callers' transactions; the driver's own outbox without one.
    """

    def __init__(
        self,
        driver: JobDriver,
        *,
        admission: Admission | None = None,
        enqueued_by: str | None = None,
        stager: Stager[Any] | None = None,
    ) -> None:
        self._driver = driver
        self._admission = Admission() if admission is None else admission
        self._enqueued_by = enqueued_by
        self._stager: Stager[Any] | None = outbox_of(driver) if stager is None else stager
        self._guard: Guard = nullcontext

    def guarded(self, guard: Guard) -> Client:
        """Give this client again, each of its calls to the store made inside `guard()`.

        The worker hands a body such a client, so that the run's end never cuts a write whose outcome would then be
        unknown. The pauses between repetitions are outside.
        """
        client = copy(self)
        client._guard = guard  # noqa: SLF001 - its own
        return client

    def admit(self, job_type: JobType, request: EnqueueRequest) -> NewJob:
        """Admit one job without storing it, as a run does whose suspension stores it. Raises what admission raises."""
        return self._admission.admit(job_type, self._attributed(request))

    async def enqueue(self, job_type: JobType, request: EnqueueRequest) -> Enqueued:
        """Admit and store one job; durable when this returns.

        A write whose outcome is unknown is repeated under the same id for a few seconds. Raises what `Admission.admit`
        and `JobDriver.enqueue` raise. After `DRIVER_UNAVAILABLE` it is still unknown whether the job was stored: with
        an idempotency key, enqueue again.
        """
        job = self.admit(job_type, request)
        if job.callback is not None:
            await self._in_store(check_callbacks(self._driver, [job]))
        return await until_known(lambda: self._in_store(self._driver.enqueue(job)))

    async def enqueue_many(self, job_type: JobType, requests: Iterable[EnqueueRequest]) -> tuple[Enqueued, ...]:
        """Admit and store up to 50,000 jobs, all or none; answers in order.

        Requests are taken one by one and the loop gets its turn in between, so they may come from a generator.

        Raises:
            RequestInvalid: more than 50,000. Else what `enqueue` raises, for the first job refused.
        """
        jobs = await self._admitted(job_type, requests)
        if any(job.callback is not None for job in jobs):
            await self._in_store(check_callbacks(self._driver, jobs))
        return await until_known(lambda: self._in_store(self._driver.enqueue_many(jobs))) if jobs else ()

    async def stage(
        self, job_type: JobType, requests: Iterable[EnqueueRequest], session: object
    ) -> tuple[StagedJob, ...]:
        """Admit jobs and stage them in the caller's transaction: published by its commit, gone with its rollback.

        Whether a live job holds a key is looked at on publish; until then the answer is the staged job's own.

        Raises:
            OutboxNoTx: the session brings no transaction to write in, or this client has no outbox.
            TransactionForeign: the transaction is not on a database that can hold an outbox.
            SchemaOutdated: the transaction's database has no outbox. Else what `enqueue_many` raises.
        """
        stager, jobs = self._outbox(), await self._admitted(job_type, requests)
        if jobs:
            # A write that is cut leaves the caller's transaction unusable; a run holds its cancellation back here.
            with self._guard():
                await stager.stage(session, jobs)
        return _staged(jobs)

    def stage_now(
        self, job_type: JobType, requests: Sequence[EnqueueRequest], session: object
    ) -> tuple[StagedJob, ...]:
        """Do the same from code that does not await, in a session of such code. Raises what `stage` raises."""
        stager = self._outbox()
        jobs = [self.admit(job_type, request) for request in requests]
        stager.stage_now(session, jobs)
        return _staged(jobs)

    async def ended(self, job_id: JobId, *, timeout: timedelta | None) -> JobView:  # noqa: ASYNC109 - says what was waited for
        """Give a job once it is terminal, or the one that its staged id led to. Raises what `Results.ended` raises."""
        return await Results(self._driver, self._stager).ended(job_id, timeout)

    def _outbox(self) -> Stager[Any]:
        if self._stager is None:
            raise OutboxNoTx(
                "this client's driver has no outbox",
                fix="make the client with a PostgreSQL driver, or give it a stager",
            )
        return self._stager

    async def _admitted(self, job_type: JobType, requests: Iterable[EnqueueRequest]) -> list[NewJob]:
        jobs: list[NewJob] = []
        for request in requests:
            if len(jobs) == MOST_AT_ONCE:
                raise RequestInvalid(
                    f"more than {MOST_AT_ONCE} jobs at once", fix=f"enqueue at most {MOST_AT_ONCE} in one call"
                )
            jobs.append(self.admit(job_type, request))
            if len(jobs) % _ADMITTED_IN_A_ROW == 0:
                await asyncio.sleep(0)
        return jobs

    async def _in_store(self, call: Awaitable[AnswerT]) -> AnswerT:
        with self._guard():
            return await call

    def _attributed(self, request: EnqueueRequest) -> EnqueueRequest:
        if request.enqueued_by is not None or self._enqueued_by is None:
            return request
        return replace(request, enqueued_by=self._enqueued_by)


@contextmanager
def use_client(client: Client, current_session: Callable[[], object | None] | None = None) -> Iterator[Client]:
    """Make a client the one that `handle.enqueue` uses, in this context and the tasks started from it.

    `current_session` gives the session of the caller's transaction, or None outside of one: with a session
    `handle.enqueue` stages in it, without one it publishes at once.
    """
    token = _CURRENT.set(_Current(client, current_session))
    try:
        yield client
    finally:
        _CURRENT.reset(token)


def be_current(client: Client) -> None:
    """Make a client the one that `handle.enqueue` uses for as long as the current context lasts: a body's own."""
    _CURRENT.set(_Current(client, None))


def current_client() -> Client:
    """Give the client that is current.

    Raises:
        DriverUnavailable: none is.
    """
    current = _CURRENT.get()
    if current is None:
        raise DriverUnavailable(
            "no client is set here, so there is no store to enqueue in",
            fix="wrap the call: with use_client(Client(driver)): await handle.enqueue(…)",
        )
    return current.client


def current_session() -> object | None:
    """Give the session of the caller's transaction, where the current client was told how to find it."""
    current = _CURRENT.get()
    return None if current is None or current.session is None else current.session()


def _staged(jobs: Sequence[NewJob]) -> tuple[StagedJob, ...]:
    return tuple(StagedJob(outbox_id=OutboxId(job.id), id=job.id) for job in jobs)
