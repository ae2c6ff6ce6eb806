"""What a body learns about the attempt it runs in: the job, its counters, its signal.

Frozen: nothing a body does here changes the store, except `enqueue`. Built by the worker for each attempt.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn, Protocol, TypeVar, Unpack

from ..domain.job import ClaimedJob, Enqueued, JobId, RunId
from ..domain.json_text import decode
from .options import EnqueueOptions
from .planned import refuse
from .signal import RunSignal

PayloadT_contra = TypeVar("PayloadT_contra", contravariant=True)
PayloadT = TypeVar("PayloadT")

_NO_META: Mapping[str, object] = MappingProxyType({})


class Enqueueable(Protocol[PayloadT_contra]):
    """A job type that can be enqueued; every handle is one."""

    def enqueue(self, payload: PayloadT_contra, **options: Unpack[EnqueueOptions]) -> Coroutine[Any, Any, Enqueued]:
        """Enqueue one job."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """The attempt at hand.

    `attempt` is 1 for the first try and grows with counted failures; `claim_no` grows with every start, also after an
    interruption or a crash. `tags` and `meta` are the enqueuer's. `signal` says when to stop.
    """

    id: JobId
    run_id: RunId
    name: str
    queue: str
    tenant: str
    attempt: int
    claim_no: int
    crashes: int
    interrupts: int
    max_attempts: int
    max_crashes: int
    signal: RunSignal = field(repr=False)
    key: str | None = None
    tags: tuple[str, ...] = ()
    meta: Mapping[str, object] = field(default_factory=lambda: _NO_META)
    parent_id: JobId | None = None
    enqueued_by: str | None = None
    traceparent: str | None = None

    @property
    def fencing_token(self) -> int:
        """Give a number that is larger for every later start of this job.

        Hand it to systems that can refuse a smaller one: a worker that woke up after it lost its lease is then refused
        there as it is here.
        """
        return self.claim_no

    async def enqueue(
        self, job: Enqueueable[PayloadT], payload: PayloadT, **options: Unpack[EnqueueOptions]
    ) -> Enqueued:
        """Enqueue a job linked to this one as its parent with the current client, without waiting for it.

        An attempt that is repeated enqueues again: give an `idempotency_key` where that matters. Raises what
        `handle.enqueue` raises.
        """
        options["parent_id"] = self.id
        return await job.enqueue(payload, **options)

    @property
    def step(self) -> NoReturn:
        """Durable steps. Not built.

        Raises:
            NotImplementedYet: always.
        """
        refuse("ctx.step", "split the work into jobs and enqueue the next one with ctx.enqueue")

    def progress(self, *_args: object) -> NoReturn:
        """Report how far a run has come. Not built.

        Raises:
            NotImplementedYet: always.
        """
        refuse("ctx.progress", "write to a logger of your own")

    def log(self, *_args: object) -> NoReturn:
        """Keep a line with the run. Not built.

        Raises:
            NotImplementedYet: always.
        """
        refuse("ctx.log", "write to a logger of your own")


def context_of(job: ClaimedJob, *, signal: RunSignal) -> JobContext:
    """Give the context of a claimed job."""
    meta = _NO_META
    if job.meta is not None and isinstance(decoded := decode(job.meta), dict):
        meta = MappingProxyType(decoded)
    return JobContext(
        id=job.token.job_id,
        run_id=job.run_id,
        name=job.name,
        queue=job.queue,
        tenant=job.tenant,
        attempt=job.counters.attempt,
        claim_no=job.token.claim_no,
        crashes=job.counters.crashes,
        interrupts=job.counters.interrupts,
        max_attempts=job.max_attempts,
        max_crashes=job.max_crashes,
        signal=signal,
        key=job.key,
        tags=job.tags,
        meta=meta,
        parent_id=job.parent_id,
        enqueued_by=job.enqueued_by,
        traceparent=job.traceparent,
    )
