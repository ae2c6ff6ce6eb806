"""What a body does durably: `ctx.step`.

Each call is a step of the run with a name of its own. What a step gave is recorded before the next one begins; a later
attempt gets the recorded value and does not do the work again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, NoReturn, ParamSpec, TypeVar, Unpack, cast, overload

from pydantic import TypeAdapter

from ..domain.errors import RequestInvalid
from ..domain.job import NewJob
from ..domain.step import NewStep, NewWait, StepKind, StepView, WaitView
from ..domain.step_errors import EventMissing, StepInvalid
from .callee import Callee, CallOptions
from .gathering import gather
from .history import Record, said
from .points import Moment
from .recorder import Recorder
from .running import run_function
from .transaction import Transaction
from .values import UndecodableError, from_text
from .waits import child_failed, known, refuse_event, refuse_itself, time_of

P = ParamSpec("P")
T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")

_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


class Steps:
    """The durable steps of one run.

    Names are unique in a run: 1 to 128 printable characters. Steps are asked for in the same order in every attempt,
    branch by branch; code that asks for others than are recorded is stopped with `REPLAY_DIVERGED` and the job is kept
    for the code that recorded them. Every call raises `STEP_DUPLICATE` for a name asked for before, `ABORTED` instead
    of beginning anything once the run was told to stop, and `LEASE_LOST` when the claim is gone. After an `ABORTED` the
    attempt has no result, whatever the body makes of it: a drain interrupts it uncounted, a timeout fails it.
    """

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @overload
    async def run(self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    async def run(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def run(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function once: its value is recorded, and on replay given back without calling it.

        `async def` runs on the loop, a plain function in a thread. The value is always made of what was stored, by the
        function's return annotation, else as plain JSON. A failure is not recorded: the next attempt calls it again.
        The function may be called more than once all the same, when the worker dies before the record is made.

        Raises:
            StepTimeout: it took longer than the job type's `step_timeout`.
            StepTooLarge: its value is over the limit for results.
            ResultInvalid: its value cannot be stored.
            Exception: what the function raises.
        """
        recorder, values = self._recorder, self._recorder.tools.values
        adapter, on_loop = values.returned_by(fn)
        place, found = await recorder.ask(name, StepKind.RUN)
        if found is not None:
            return self._decoded(adapter, found)
        began = recorder.tools.monotonic()
        held = None if on_loop else ExitStack()
        try:
            if held is None and recorder.step_timeout is None and recorder.tools.span is None:
                # What most steps are: each layer of calls costs as much as another part of a small step.
                try:
                    with recorder.inside(name):
                        value = await fn(*args, **kwargs)
                except BaseException as error:
                    recorder.stop.note(error)
                    raise
            else:
                value = await run_function(recorder, name, partial(fn, *args, **kwargs), held)
            lasted = timedelta(seconds=recorder.tools.monotonic() - began)
            text, given = values.kept(adapter, value, step=name)
            if recorder.tools.at is not None:
                await recorder.reach(Moment.INSIDE, name, StepKind.RUN)
            await recorder.record(NewStep(name, StepKind.RUN, place, text, lasted))
        finally:
            if held is not None:
                held.close()
        return given

    async def sleep(
        self, name: str, delay: timedelta | datetime | None = None, *, until: datetime | None = None
    ) -> None:
        """Give the worker back for a while: a duration, or until an aware instant.

        Waiting holds no worker. A duration counts from the suspension; zero or less is over at once.

        Raises:
            StepInvalid: not exactly one of the two, an instant without a time zone, or more than five years.
        """
        lasts, ends = time_of(name, delay, until, now=self._recorder.store_now)
        place, found = await self._recorder.ask(name, StepKind.SLEEP)
        if isinstance(found, StepView):
            return
        if found is not None:
            raise self._recorder.suspended(known(found))
        if lasts is not None and lasts <= timedelta():
            await self._recorder.record(NewStep(name=name, kind=StepKind.SLEEP, place=place, value=None))
            return
        raise self._recorder.suspended(NewWait(name=name, kind=StepKind.SLEEP, place=place, delay=lasts, until=ends))

    async def wait_for_event(
        self,
        name: str,
        event: str,
        *,
        key: str,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - of the wait, not of a worker
        since: Literal["enqueue", "wait"] = "enqueue",
        required: bool = False,
    ) -> Any:  # noqa: ANN401 - whatever was emitted
        """Wait for an event of the job's tenant and give its payload as plain JSON.

        It is the first event of that name and key since the run was enqueued, or since the wait began, that this run
        has not taken already. None when `timeout` passes first. A job that was staged in a transaction counts as
        enqueued then, a fork when the job was that it was made from.

        Raises:
            EventMissing: `timeout` passed first, and the event is `required`: `STEP_TIMEOUT`, terminal. A retry by hand
                waits anew, and takes an event that came late, unless the run has gone on from there.
            StepInvalid: a name, key, timeout or `since` that cannot be.
        """
        refuse_event(event, key, timeout, since)
        place, found = await self._recorder.ask(name, StepKind.EVENT)
        if isinstance(found, StepView):
            return self._event_of(found, event, required=required)
        if found is not None:
            raise self._recorder.suspended(known(found))
        raise self._recorder.suspended(
            NewWait(
                name=name,
                kind=StepKind.EVENT,
                place=place,
                delay=timeout,
                event=event,
                key=key,
                from_now=since == "wait",
            )
        )

    async def call(
        self, name: str, job: Callee[PayloadT, ResultT], payload: PayloadT, **options: Unpack[CallOptions]
    ) -> ResultT:
        """Run another job as a child of this one and give its result; the worker is given back meanwhile.

        The child is enqueued in the commit of the suspension. With an idempotency key that is taken, the job that has
        it is waited for. A cancel of this job cancels the child, a fresh retry too. The options are those of
        `handle.enqueue`; a child whose job type declares no tenant is of this job's.

        Raises:
            ChildFailed: the child is dead, cancelled or deleted. Not recorded: once an attempt has failed with it, the
                next makes the call anew, with a new child. A run that has gone on from it hears it in every attempt.
            CallCycle: the child has this job's own type, tenant and idempotency key.
            StepInvalid: an option is out of bounds.
            PayloadInvalid: the payload does not fit. Else what `handle.enqueue` raises.
        """
        place, found = await self._recorder.ask(name, StepKind.CALL)
        if isinstance(found, StepView):
            return self._result_of(job, found)
        if isinstance(found, WaitView):
            if self._recorder.has_failed(found):
                raise child_failed(found, job.name)
            raise self._recorder.suspended(known(found))
        child = self._admitted(job, payload, options)
        refuse_itself(name, child, self._recorder.job)
        raise self._recorder.suspended(NewWait(name=name, kind=StepKind.CALL, place=place, child=child))

    def transaction(self, name: str, *, bind: object | None = None) -> AbstractAsyncContextManager[Any]:
        """Give a block whose writes and record commit together: `async with ctx.step.transaction("book") as session`.

        `session` is SQLAlchemy's `AsyncSession` on the store's own database, or on `bind`, an engine of the caller's on
        that database. On replay the block is left out: take what it made from the database after it, not from
        variables set inside. Do not commit in it; that is done at its end, fenced. Do not leave it by `return`, `break`
        or `continue`: a replay would go on behind it.

        Raises:
            StepInvalid: it is left so.
            TransactionForeign: `bind`, or the store, is not on the store's PostgreSQL database.
            StepTimeout: the block took longer than the job type's `step_timeout`; nothing is written.
        """
        return Transaction(self._recorder, name, bind=bind)

    @overload
    async def gather(self, first: Awaitable[T1], /) -> tuple[T1]: ...

    @overload
    async def gather(self, first: Awaitable[T1], second: Awaitable[T2], /) -> tuple[T1, T2]: ...

    @overload
    async def gather(
        self, first: Awaitable[T1], second: Awaitable[T2], third: Awaitable[T3], /
    ) -> tuple[T1, T2, T3]: ...

    @overload
    async def gather(
        self, first: Awaitable[T1], second: Awaitable[T2], third: Awaitable[T3], fourth: Awaitable[T4], /
    ) -> tuple[T1, T2, T3, T4]: ...

    @overload
    async def gather(
        self,
        first: Awaitable[T1],
        second: Awaitable[T2],
        third: Awaitable[T3],
        fourth: Awaitable[T4],
        fifth: Awaitable[T5],
        /,
    ) -> tuple[T1, T2, T3, T4, T5]: ...

    @overload
    async def gather(self, *awaitables: Awaitable[T]) -> tuple[T, ...]: ...

    async def gather(self, *awaitables: Awaitable[Any]) -> tuple[Any, ...]:
        """Run branches side by side, each with steps of its own order, and give their values in order.

        Every branch runs until it ends or has to wait; then the run waits for all that wait, or the first error in
        declared order is raised. Steps that were recorded stay so. A branch that fails beside one that waits is logged
        (`branch.failed`), and called again in every attempt until none waits; only then its error is raised.

        Raises:
            Exception: what a branch raises.
            StepInvalid: asked for in a task of the body's own making, or inside a step.
        """
        return await gather(self._recorder, awaitables)

    def _admitted(self, job: Callee[PayloadT, Any], payload: PayloadT, options: Mapping[str, Any]) -> NewJob:
        try:
            return job.child(payload, self._recorder.job, options)
        except RequestInvalid as refused:
            raise StepInvalid(refused.cause, fix=refused.fix, **refused.details) from refused

    # --- what is recorded --------------------------------------------------------------------------------------------

    def _decoded(self, adapter: TypeAdapter[Any], found: Record) -> Any:  # noqa: ANN401 - what the annotation says
        try:
            return from_text(adapter, cast("StepView", found).value)
        except UndecodableError as exc:
            self._unreadable(found, exc)

    def _result_of(self, job: Callee[Any, ResultT], found: StepView) -> ResultT:
        try:
            return job.result_of(found.value)
        except UndecodableError as exc:
            self._unreadable(found, exc)

    def _event_of(self, found: StepView, event: str, *, required: bool) -> Any:  # noqa: ANN401 - whatever was emitted
        if not found.has_event and required:
            self._recorder.missed(found)
            raise EventMissing(
                f"the event {event!r} that step {found.name!r} waits for did not come in time",
                fix="emit the event and retry the job, which then takes it; or leave required= out and handle None",
                step=found.name,
            )
        return self._decoded(_ANYTHING, found)

    def _unreadable(self, found: Record, error: UndecodableError) -> NoReturn:
        self._recorder.diverge(found, f"the code cannot read what {said(found)} gave ({error}), recorded")
