"""What a body learns about the attempt it runs in: the job, its counters, its signal.

Read only, but for what a body enqueues, records as steps and says of itself. Built by the worker for each attempt, as a
face of the claimed job, since most bodies ask for little of it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, Unpack, cast
from uuid import UUID

from ..domain.errors import RequestInvalid
from ..domain.job import ClaimedJob, JobId, RunId
from ..domain.json_text import decode
from ..steps.api import Steps
from .options import EnqueueOptions
from .results import EnqueuedJob
from .signal import RunSignal

PayloadT_contra = TypeVar("PayloadT_contra", contravariant=True)
PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)
IdT = TypeVar("IdT", bound=UUID)

_NO_META: Mapping[str, object] = MappingProxyType({})


class Enqueueable(Protocol[PayloadT_contra, ResultT_co]):
    """A job type that can be enqueued; every handle is one."""

    def enqueue(
        self, payload: PayloadT_contra, **options: Unpack[EnqueueOptions]
    ) -> Coroutine[Any, Any, EnqueuedJob[ResultT_co]]:
        """Enqueue one job."""
        ...


class Desk(Protocol):
    """What a worker does for the bodies it runs. `log` and `progress` may be called from any thread."""

    def steps(self, job: ClaimedJob) -> Steps:
        """Open the durable steps of an attempt; asked once.

        Raises:
            RequestInvalid: its body is a plain `def`.
        """
        ...

    def progress(self, job: ClaimedJob, value: float, message: str | None) -> None:
        """Keep how far a run has come."""
        ...

    def log(self, job: ClaimedJob, message: str) -> None:
        """Keep a line of a run."""
        ...


class JobContext:
    """The attempt at hand: a face of the claimed job that a body can only read."""

    __slots__ = ("_desk", "_job", "_meta", "_signal", "_steps")

    def __init__(
        self,
        job: ClaimedJob,
        *,
        signal: RunSignal,
        meta: Mapping[str, object] = _NO_META,
        desk: Desk | None = None,
    ) -> None:
        self._job = job
        self._signal = signal
        self._meta = meta
        self._desk = desk
        self._steps: Steps | None = None

    def __repr__(self) -> str:
        return f"JobContext(id={self.id}, name={self.name!r}, attempt={self.attempt}, claim_no={self.claim_no})"

    @property
    def id(self) -> JobId:
        """Give the job's id."""
        return plain_id(self._job.token.job_id)

    @property
    def run_id(self) -> RunId:
        """Give the id of the run this job belongs to: its own, unless it is part of a larger one."""
        return plain_id(self._job.run_id)

    @property
    def name(self) -> str:
        """Give the job type's name."""
        return self._job.name

    @property
    def queue(self) -> str:
        """Give the queue it was claimed from."""
        return self._job.queue

    @property
    def tenant(self) -> str:
        """Give the tenant it belongs to."""
        return self._job.tenant

    @property
    def attempt(self) -> int:
        """Give 1 for the first try; grows with counted failures."""
        return self._job.counters.attempt

    @property
    def claim_no(self) -> int:
        """Give a number that grows with every start, also after an interruption or a crash."""
        return self._job.token.claim_no

    @property
    def crashes(self) -> int:
        """Give how often a worker vanished while it ran the job."""
        return self._job.counters.crashes

    @property
    def interrupts(self) -> int:
        """Give how often a worker's drain cut the job off."""
        return self._job.counters.interrupts

    @property
    def max_attempts(self) -> int:
        """Give how many failures are allowed."""
        return self._job.max_attempts

    @property
    def max_crashes(self) -> int:
        """Give how many crashes are allowed."""
        return self._job.max_crashes

    @property
    def signal(self) -> RunSignal:
        """Give what says when to stop."""
        return self._signal

    @property
    def key(self) -> str | None:
        """Give the idempotency key."""
        return self._job.key

    @property
    def tags(self) -> tuple[str, ...]:
        """Give the enqueuer's tags."""
        return self._job.tags

    @property
    def meta(self) -> Mapping[str, object]:
        """Give the enqueuer's metadata."""
        return self._meta

    @property
    def parent_id(self) -> JobId | None:
        """Give the id of the job that enqueued this one."""
        return None if self._job.parent_id is None else plain_id(self._job.parent_id)

    @property
    def enqueued_by(self) -> str | None:
        """Give who enqueued it."""
        return self._job.enqueued_by

    @property
    def traceparent(self) -> str | None:
        """Give the trace it was enqueued in."""
        return self._job.traceparent

    @property
    def fencing_token(self) -> int:
        """Give a number that is larger for every later start of this job.

        Hand it to systems that can refuse a smaller one: a worker that woke up after it lost its lease is then refused
        there as it is here.
        """
        return self.claim_no

    async def enqueue(
        self, job: Enqueueable[PayloadT, ResultT], payload: PayloadT, **options: Unpack[EnqueueOptions]
    ) -> EnqueuedJob[ResultT]:
        """Enqueue a job linked to this one as its parent with the current client, without waiting for it.

        Awaiting its result here holds a place of the worker, for ever if the job needs that very place:
        `ctx.step.call` gives it back meanwhile. An attempt that is repeated enqueues again: give an `idempotency_key`
        where that matters. Raises what `handle.enqueue` raises.
        """
        options["parent_id"] = self.id
        return await job.enqueue(payload, **options)

    @property
    def step(self) -> Steps:
        """Give the durable steps of the run: what they did is recorded, and not done again by a later attempt.

        Raises:
            RequestInvalid: the body is a plain `def`, or no worker runs it.
        """
        if self._steps is None:
            self._steps = self._served("ctx.step").steps(self._job)
        return self._steps

    def progress(self, value: float, message: str | None = None) -> None:
        """Say how far the run has come, from 0 to 1, for whoever looks at it. Any thread, at any rate.

        Kept in the background, the latest value only, at most 256 characters of the message; never fails the body.
        """
        self._served("ctx.progress").progress(self._job, value, message)

    def log(self, message: str) -> None:
        """Keep a line with the run, for whoever looks at it. Any thread.

        Kept in the background: the first 1,000 lines of a run, at most 2,048 characters of each; never fails the body.
        A line outside of steps is said again by every attempt, also after each wait, and each time is one of the 1,000;
        one said inside the function of a step is not, once that is recorded.
        """
        self._served("ctx.log").log(self._job, message)

    def _served(self, what: str) -> Desk:
        if self._desk is None:
            raise RequestInvalid(f"{what} has no store here", fix="have a worker run the job: enqueue it")
        return self._desk


def context_of(job: ClaimedJob, *, signal: RunSignal, desk: Desk | None = None) -> JobContext:
    """Give the context of a claimed job; `desk` serves what it asks the store for."""
    meta = _NO_META
    if job.meta is not None and isinstance(decoded := decode(job.meta), dict):
        meta = MappingProxyType(decoded)
    return JobContext(job, signal=signal, meta=meta, desk=desk)


def plain_id(value: IdT) -> IdT:
    """Give an id as the standard library's UUID: encoders that ask for the exact type refuse a store's own class."""
    return value if type(value) is UUID else cast("IdT", UUID(int=value.int))
