"""Results from code: wait for a job, wherever its id leads, and give what it returned or say why there is nothing.

Called by handles, through the client; jobs that were enqueued carry their way here with them. Reads only: a wait that
is given up changes nothing about the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Generic, NoReturn, Protocol, TypeVar
from uuid import UUID

from ..domain.errors import (
    JobFailed,
    JobNotFound,
    JobTimeout,
    OutlastError,
    RequestInvalid,
    ResultInvalid,
    error_classes,
)
from ..domain.job import Enqueued, JobId
from ..domain.outbox import Refusal, StagedJob
from ..domain.sealed import readable
from ..domain.snapshot import JobView
from ..domain.state import TERMINAL, State
from ..drivers.outbox import StagedReader, outbox_of
from ..drivers.protocol import JobDriver
from ..steps.repeat import PATIENCE_SECONDS, until_known
from ..steps.values import UndecodableError

ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)

_FIRST_LOOK_SECONDS = 0.05  # for a staged job: nothing wakes anybody when a relay publishes it
_LONGEST_LOOK_SECONDS = 1.0


class Awaiter(Protocol):
    """What waits for jobs; every client does."""

    async def ended(self, job_id: JobId, *, timeout: timedelta | None) -> JobView:  # noqa: ASYNC109 - as below
        """Give a job once it is terminal."""
        ...


class Decoder(Protocol[ResultT_co]):
    """What a job type is for its results; every handle is one."""

    @property
    def name(self) -> str:
        """Give the job type's name."""
        ...

    def result_of(self, text: str | None) -> ResultT_co:
        """Give a result from its stored text."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRef(Generic[ResultT_co]):
    """A job of a known type, by its id alone: nothing was looked at to make it."""

    id: JobId
    job_type: Decoder[ResultT_co] = field(repr=False, compare=False)
    client: Awaiter = field(repr=False, compare=False)

    async def result(self, *, timeout: timedelta | None = None) -> ResultT_co:  # noqa: ASYNC109 - a wait that ends says what it waited for
        """Wait until the job has ended and give what its body returned. As `JobHandle.result`, which see."""
        return await result_of(self.client, self.job_type, self.id, timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueuedJob(Enqueued, Generic[ResultT_co]):
    """The answer to an enqueue from code: an `Enqueued` whose result can be awaited, by the process that enqueued."""

    job_type: Decoder[ResultT_co] = field(repr=False, compare=False)
    client: Awaiter = field(repr=False, compare=False)

    async def result(self, *, timeout: timedelta | None = None) -> ResultT_co:  # noqa: ASYNC109 - as above
        """Wait until the job has ended and give what its body returned. As `JobHandle.result`, which see."""
        return await result_of(self.client, self.job_type, self.id, timeout)


def awaitable(answer: Enqueued, job_type: Decoder[ResultT], client: Awaiter) -> EnqueuedJob[ResultT]:
    """Give the answer to an enqueue with its way to the result."""
    return EnqueuedJob(
        id=answer.id,
        run_id=answer.run_id,
        deduped=answer.deduped,
        key_expires_at=answer.key_expires_at,
        job_type=job_type,
        client=client,
    )


async def result_of(
    client: Awaiter,
    job_type: Decoder[ResultT],
    job: JobId | UUID | Enqueued | StagedJob | JobRef[ResultT],
    timeout: timedelta | None,  # noqa: ASYNC109 - as above
) -> ResultT:
    """Wait for a job of a type and give its result. Raises what `JobHandle.result` says."""
    job_id = job if isinstance(job, UUID) else job.id
    view = await client.ended(JobId(job_id), timeout=timeout)
    if view.name != job_type.name:
        raise RequestInvalid(
            f"job {view.id} is a {view.name}, not a {job_type.name}", fix=f"ask the handle of {view.name}"
        )
    if view.state is not State.DONE:
        raise _failed(view)
    text = readable(view.result)
    try:
        return job_type.result_of(text)
    except UndecodableError as exc:
        raise ResultInvalid(
            f"what job {view.id} returned does not fit the return annotation of {job_type.name} here: {exc}",
            fix="read results with the code that the job ran with, or keep return types compatible",
            job_id=str(view.id),
        ) from exc


class Results:
    """Waits for jobs of one store; `staged` is where they may have been staged, None where nobody can look."""

    def __init__(self, driver: JobDriver, staged: object | None) -> None:
        self._driver = driver
        self._beside = outbox_of(driver)
        self._staged = staged if isinstance(staged, StagedReader) else self._beside

    async def ended(self, job_id: JobId, timeout: timedelta | None) -> JobView:  # noqa: ASYNC109 - as above
        """Give a job once it is terminal, or the job its staged id led to.

        Raises:
            JobTimeout: it was not in time. JobNotFound: it is absent. OutlastError: its staged row was refused.
            DriverUnavailable: the store was away for more than 3 s, or was closed.
        """
        left = _Left.of(timeout)
        pause = _FIRST_LOOK_SECONDS
        while True:
            is_over = left.is_over
            view = await self._read(job_id, left)
            if view is None:
                leads_to = await self._led_to(job_id, left)
                if leads_to != job_id:
                    job_id = leads_to
                    continue
                state = "staged"
            elif view.state in TERMINAL:
                return view
            else:
                state = view.state.value
            if is_over:
                raise _not_in_time(job_id, state, timeout)
            pause = await self._wait(job_id, left, None if view is not None else pause)

    async def _wait(self, job_id: JobId, left: _Left, pause: float | None) -> float:
        """Wait for a job to end, or for a while where there is none yet; gives the next while."""
        try:
            async with asyncio.timeout(left.seconds):
                if pause is None:
                    await self._driver.until_finished(job_id)
                else:
                    await asyncio.sleep(pause)
        except TimeoutError:
            pass
        return _FIRST_LOOK_SECONDS if pause is None else min(_LONGEST_LOOK_SECONDS, pause * 2)

    async def _led_to(self, job_id: JobId, left: _Left) -> JobId:
        """Give where the id of an absent job leads: to another job, or to itself while its row waits."""
        # In the order in which a row becomes a job: one that is gone from the outbox by now has left its source.
        staged, beside = self._staged, self._beside
        row = None if staged is None else await _known(lambda: staged.find(job_id), left)
        found = None if beside is None else await _known(lambda: beside.forwarded(job_id), left)
        if found is not None and found != job_id:
            return found
        if row is not None and found is None:
            if row.refusal is not None:
                _raise_refusal(job_id, row.refusal)
            return job_id
        # It may have been published between the looks.
        if await self._read(job_id, left) is not None:
            return job_id
        raise JobNotFound(
            f"there is no job {job_id}",
            fix="await a result after the transaction that enqueues has committed, and before the job's retention ends;"
            " check that this is the store it went to",
            job_id=str(job_id),
        )

    async def _read(self, job_id: JobId, left: _Left) -> JobView | None:
        return await _known(lambda: self._driver.describe(job_id), left)


class _Left:
    """The time that is left of a wait."""

    def __init__(self, until: float | None) -> None:
        self._until = until

    @classmethod
    def of(cls, timeout: timedelta | None) -> _Left:
        if timeout is None:
            return cls(None)
        if not isinstance(timeout, timedelta):
            raise RequestInvalid(
                f"timeout={timeout!r} has no unit", fix="pass a timedelta, or None to wait for ever", pointer="/timeout"
            )
        return cls(asyncio.get_running_loop().time() + timeout.total_seconds())

    @property
    def seconds(self) -> float | None:
        return None if self._until is None else max(0.0, self._until - asyncio.get_running_loop().time())

    @property
    def is_over(self) -> bool:
        return self.seconds == 0.0

    @property
    def patience(self) -> float:
        seconds = self.seconds
        return PATIENCE_SECONDS if seconds is None else min(PATIENCE_SECONDS, seconds)


async def _known(read: Callable[[], Awaitable[ResultT]], left: _Left) -> ResultT:
    return await until_known(read, patience_seconds=left.patience)


def _not_in_time(job_id: JobId, state: str, timeout: timedelta | None) -> JobTimeout:
    waited = "" if timeout is None else f" within {timeout.total_seconds():g} s"
    return JobTimeout(
        f"job {job_id} did not end{waited}; it is {state}, and goes on",
        fix="await its result again, or longer; cancel it if it is not wanted any more",
        job_id=str(job_id),
        state=state,
    )


def _failed(view: JobView) -> JobFailed:
    error = view.error
    said = "" if error is None else f"; its last attempt ended with {error.type}: {error.message}"
    return JobFailed(
        f"job {view.id} ({view.name}) is {view.state}: {view.state_reason or 'no reason given'}{said}",
        fix=f"read its attempts with `outlast jobs show {view.id}`, mend the cause, then retry it",
        job_id=str(view.id),
        state=view.state.value,
        reason=view.state_reason,
        error=None if error is None else {"type": error.type, "message": error.message, "code": error.code},
    )


def _raise_refusal(job_id: JobId, refusal: Refusal) -> NoReturn:
    """Raise what put a staged row aside, by its own code."""
    kind = JobNotFound if refusal.code is None else error_classes().get(refusal.code, OutlastError)
    raise kind(
        f"the staged job {job_id} ({refusal.name}) was refused when it was to be published: {refusal.message}",
        fix=f"mend the cause, then stage it again: `outlast outbox replay {job_id}`",
        job_id=str(job_id),
    )
