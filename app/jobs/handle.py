"""Job types as authors declare them: `@job("name")` makes a frozen handle of a function.

A handle is the function still, knows its payload and result types, and enqueues. Declaring one registers nothing;
its annotations are read when it is registered or first used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, Unpack, cast, overload
from uuid import UUID

from pydantic import BaseModel

from ..domain.errors import JobNameTaken, SettingsInvalid
from ..domain.job import NAME_PATTERN, ClaimedJob, Enqueued, JobId, NewJob
from ..domain.outbox import StagedJob
from ..steps.values import from_text
from .client import current_client
from .context import JobContext, plain_id
from .enqueue import request_of, requests_of, session_of
from .jobtype import JobType
from .options import EnqueueOptions, ManyOptions, StageManyOptions, StageOptions
from .policy import JobPolicy, PolicyOptions, is_name
from .results import EnqueuedJob, JobRef, awaitable, result_of
from .signature import BodySignature, place, read_signature, title

PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")
ModelT = TypeVar("ModelT", bound=BaseModel)
ReturnT_co = TypeVar("ReturnT_co", covariant=True)
Params = ParamSpec("Params")

Fields: TypeAlias = Mapping[str, object]  # the payload of a body with plain parameters


@dataclass(frozen=True, eq=False, kw_only=True)
class JobHandle(Generic[PayloadT, ResultT]):
    """A declared job type. Two handles are never equal; one handle registered twice is one registration."""

    name: str
    policy: JobPolicy
    body: Callable[..., object]

    def __post_init__(self) -> None:
        for attribute in ("__doc__", "__name__", "__qualname__", "__module__"):
            object.__setattr__(self, attribute, getattr(self.body, attribute, None))
        object.__setattr__(self, "__wrapped__", self.body)

    @property
    def doc(self) -> str:
        """Give the body's docstring, without its indentation."""
        return inspect.getdoc(self.body) or ""

    @cached_property
    def is_sync(self) -> bool:
        """Say whether the body is a plain `def`, which runs in a thread."""
        return not inspect.iscoroutinefunction(self.body)

    @property
    def place(self) -> str:
        """Give module, name, file and line of the body, for messages."""
        return f"{title(self.body)} ({place(self.body)})"

    @cached_property
    def signature(self) -> BodySignature:
        """Give what the body takes and gives, read on first use.

        Raises:
            SettingsInvalid: an annotation is missing, cannot be resolved or has no JSON form.
        """
        return read_signature(self.body)

    @cached_property
    def job_type(self) -> JobType:
        """Give the job type as admission sees it; made on first use.

        Raises:
            SettingsInvalid: as `signature`, or a template names a field that the payload cannot have.
        """
        return JobType.of_handle(self)

    @overload
    async def enqueue(self, payload: PayloadT, **options: Unpack[EnqueueOptions]) -> EnqueuedJob[ResultT]: ...

    @overload
    async def enqueue(self, payload: PayloadT, **options: Unpack[StageOptions]) -> StagedJob: ...

    async def enqueue(self, payload: PayloadT, **options: Any) -> EnqueuedJob[ResultT] | StagedJob:
        """Enqueue one job with the current client; durable when this returns, or with the caller's commit.

        `payload` is the body's model, or a mapping of its fields. An idempotency key that is taken gives the job that
        holds it with `deduped`. `await answer.result(timeout=…)` waits for the job's end, see `result`. With a
        `session`, or while the client's `current_session` gives one, the job is staged in that transaction: its commit
        publishes the job, its rollback leaves nothing, and the answer is a `StagedJob`.

        Raises:
            DriverUnavailable: no client is set, or the store cannot be reached.
            PayloadInvalid: the payload does not fit.
            RequestInvalid: an option is out of bounds.
            JobDuplicate: the key is taken and `on_conflict` is `"error"`; never when staged.
            IdempotencyMismatch: the key is taken by a job with another payload; never when staged.
            OutboxNoTx: `mode="required"` without a transaction, or a session that brings none.
            TransactionForeign: the transaction is not on PostgreSQL.
        """
        client, session = current_client(), session_of(options)
        if session is None:
            answer = await client.enqueue(self.job_type, request_of(self, payload, options))
            return awaitable(answer, self, client)
        return (await client.stage(self.job_type, [request_of(self, payload, options)], session))[0]

    @overload
    async def enqueue_many(
        self, payloads: Sequence[PayloadT], **options: Unpack[ManyOptions]
    ) -> tuple[EnqueuedJob[ResultT], ...]: ...

    @overload
    async def enqueue_many(
        self, payloads: Sequence[PayloadT], **options: Unpack[StageManyOptions]
    ) -> tuple[StagedJob, ...]: ...

    async def enqueue_many(
        self, payloads: Sequence[PayloadT], **options: Any
    ) -> tuple[EnqueuedJob[ResultT], ...] | tuple[StagedJob, ...]:
        """Enqueue up to 50,000 jobs, all or none, with options that hold for each; answers in order.

        Staged like `enqueue` with a session. Raises what `enqueue` raises.
        """
        client, session = current_client(), session_of(options)
        requests = requests_of(self, payloads, options)
        if session is None:
            answers = await client.enqueue_many(self.job_type, requests)
            return tuple(awaitable(answer, self, client) for answer in answers)
        return await client.stage(self.job_type, requests, session)

    def stage(self, payload: PayloadT, **options: Unpack[StageOptions]) -> StagedJob:
        """Stage one job from code that does not await, in its `Session` or `Connection`.

        The session may also be the current one, with `mode="required"`. Raises what `enqueue` raises.
        """
        client = current_client()
        session = session_of(options | {"mode": "required"})
        return client.stage_now(self.job_type, [request_of(self, payload, options)], session)[0]

    def child(self, payload: PayloadT, parent: ClaimedJob, options: Mapping[str, Any]) -> NewJob:
        """Admit one job as a child of another, with the current client's rules; nothing is stored.

        It is of its parent's tenant where the job type declares none. Raises what `enqueue` raises before it stores.
        """
        given: dict[str, Any] = {**options, "parent_id": plain_id(parent.token.job_id)}
        if self.job_type.tenant_rule is None:
            given.setdefault("tenant", parent.tenant)
        return current_client().admit(self.job_type, request_of(self, payload, given))

    def job(self, job_id: JobId | UUID) -> JobRef[ResultT]:
        """Give a job of this type by its id, to await its `result` with the client that is current now.

        Raises:
            DriverUnavailable: no client is set.
        """
        return JobRef(id=JobId(job_id), job_type=self, client=current_client())

    async def result(
        self,
        job: JobId | UUID | Enqueued | StagedJob | JobRef[ResultT],
        *,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - a wait that ends says what it waited for
    ) -> ResultT:
        """Wait until a job of this type has ended and give what its body returned, by the return annotation.

        At most `timeout`, None: for ever; zero looks once. The id of a staged job leads to the job that it became,
        or that its key led to; await it after the commit. Waiting holds no connection, and giving up changes nothing
        about the job. In a body it holds a place of the worker: `ctx.step.call` does not.

        Raises:
            JobFailed: the job is dead or cancelled. Details: `job_id`, `state`, `reason` and the last attempt's
                `error`.
            JobTimeout: it did not end in time, and goes on. Details: `job_id`, `state`, which is `staged` where no
                relay has published it.
            JobNotFound: there is no such job, or it is purged. Where its staged row was refused, the refusal's own
                error.
            ResultInvalid: what is stored does not fit the return annotation.
            RequestInvalid: it is a job of another type.
            DriverUnavailable: no client is set, or the store was away for seconds, or was closed.
        """
        return await result_of(current_client(), self, job, timeout)

    def result_of(self, text: str | None) -> ResultT:
        """Give the result of a job of this type from its stored text.

        Raises:
            UndecodableError: it does not fit the return annotation.
        """
        return cast("ResultT", from_text(self.signature.result, text))


class JobFunction(JobHandle[PayloadT, ResultT], Generic[PayloadT, ResultT, Params, ReturnT_co]):
    """A handle that is called as the function it was made of."""

    def __call__(self, *args: Params.args, **kwargs: Params.kwargs) -> ReturnT_co:
        """Call the body itself: nothing is enqueued."""
        return self.body(*args, **kwargs)  # type: ignore[return-value] # `Declaration` ties body and type parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A name and a policy that wait for their body; what `@job(…)` applies."""

    name: str
    policy: JobPolicy

    # The last overload would take every body; mypy is told that order decides.
    @overload
    def __call__(  # type: ignore[overload-overlap] # the earlier overload wins
        self, body: Callable[[JobContext, ModelT], Coroutine[Any, Any, ResultT]], /
    ) -> JobFunction[ModelT, ResultT, [JobContext, ModelT], Coroutine[Any, Any, ResultT]]: ...

    @overload
    def __call__(  # type: ignore[overload-overlap] # the earlier overload wins
        self, body: Callable[[ModelT], Coroutine[Any, Any, ResultT]], /
    ) -> JobFunction[ModelT, ResultT, [ModelT], Coroutine[Any, Any, ResultT]]: ...

    @overload
    def __call__(
        self, body: Callable[[JobContext, ModelT], ResultT], /
    ) -> JobFunction[ModelT, ResultT, [JobContext, ModelT], ResultT]: ...

    @overload
    def __call__(self, body: Callable[[ModelT], ResultT], /) -> JobFunction[ModelT, ResultT, [ModelT], ResultT]: ...

    @overload
    def __call__(
        self, body: Callable[Params, Coroutine[Any, Any, ResultT]], /
    ) -> JobFunction[Fields, ResultT, Params, Coroutine[Any, Any, ResultT]]: ...

    @overload
    def __call__(self, body: Callable[Params, ResultT], /) -> JobFunction[Fields, ResultT, Params, ResultT]: ...

    def __call__(self, body: Callable[..., Any], /) -> JobFunction[Any, Any, ..., Any]:
        """Make the handle.

        Raises:
            JobNameTaken: the body is a handle already.
            SettingsInvalid: the body is not a function whose end has one result.
        """
        if isinstance(body, JobHandle):
            raise JobNameTaken(
                f"{title(body.body)} is declared as {body.name!r} and as {self.name!r}",
                fix="declare a body once; give the second job a function of its own that calls the first",
            )
        if not inspect.isroutine(body) or inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
            raise SettingsInvalid(
                f"the body of {self.name} is {type(body).__name__} {body!r}",
                fix="use `def` or `async def`, without yield",
            )
        return JobFunction(name=self.name, policy=self.policy, body=body)


def job(name: str, **policy: Unpack[PolicyOptions]) -> Declaration:
    """Declare a job type: put `@job("receipts.send", …)` on the function that does the work.

    The function takes an optional parameter annotated `JobContext`, and either one pydantic model, the payload, or any
    number of annotated plain parameters. `async def` runs on the loop, `def` in a thread. The keywords are the fields
    of `JobPolicy`.

    Raises:
        SettingsInvalid: the name or a policy value can never work.
        NotImplementedYet: a policy that is not built.
    """
    if not is_name(name):
        raise SettingsInvalid(f"{name!r} is not a job name", fix=f"use a name that matches {NAME_PATTERN}")
    return Declaration(name=name, policy=JobPolicy(**policy))
