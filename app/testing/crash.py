"""Crash testing: a job is run once undisturbed, and again with a crash at every point of it, one each.

A job that survives has the same effects every time. What differs is reported with the step, the kind of crash and both
values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ..domain.errors import RequestInvalid
from ..domain.job import JobId
from ..domain.snapshot import JobView
from ..domain.state import State
from ..jobs.handle import JobHandle
from .env import PATIENCE, Env, open_env
from .known import Jobs
from .machine import carry_tasks
from .report import Crash, CrashDifference, CrashReport, Difference, Seen
from .stores import KitStore, MemoryStore
from .strike import Strike, Survey

PayloadT = TypeVar("PayloadT")

_MOST_INSTANTS = 10_000
_TERMINAL = frozenset({State.DONE, State.DEAD, State.CANCELLED})


class Emission(NamedTuple):
    """An event to emit once the run waits for it."""

    name: str
    key: str
    payload: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What is run, again and again."""

    handle: JobHandle[Any, Any]
    payload: Any
    events: tuple[Emission, ...]
    check: Callable[..., object] | None
    before: Callable[[], object] | None
    store: KitStore
    jobs: Jobs = ()
    patience: timedelta = PATIENCE
    options: dict[str, Any] = field(default_factory=dict)

    async def run(self, visitor: Survey) -> Seen:
        """Run the job once, from an empty store to its end."""
        await _called(self.before)
        async with open_env(self.store, jobs=self.jobs, patience=self.patience, visitor=visitor) as env:
            if isinstance(visitor, Strike):
                visitor.attend(env)
            queued = await env.enqueue(self.handle, self.payload, **self.options)
            visitor.job_id = queued.id
            view = await self._to_its_end(env, queued.id)
            visitor.jobs = env.handles()
            if isinstance(visitor, Strike):
                await visitor.finish()
            effects = await _result(env, view) if self.check is None else await _checked(self.check, env)
        why = "" if view.error is None else f"{view.error.type}: {view.error.message}"
        return Seen(state=view.state, effects=effects, why=why or (view.state_reason or ""))

    async def _to_its_end(self, env: Env, job_id: JobId) -> JobView:
        left = list(self.events)
        for _ in range(_MOST_INSTANTS):
            await env.drain()
            view = await env.job(job_id)
            if view.state in _TERMINAL:
                return view
            if not await _emits(env, left):
                at = await env.next_instant()
                if at is None:
                    raise _stuck(view)
                await env.crew.move(at)
        raise RequestInvalid(
            f"{self.handle.name} has not ended after {_MOST_INSTANTS} waits", fix="test a payload with which it ends"
        )


async def crash_everywhere(
    job: JobHandle[PayloadT, Any],
    payload: PayloadT | None = None,
    *,
    check: Callable[[], object] | Callable[[Env], object] | None = None,
    events: Iterable[tuple[str, str] | tuple[str, str, object]] = (),
    before: Callable[[], object] | None = None,
    crashes: Sequence[Crash] = tuple(Crash),
    jobs: Jobs = (),
    env: Env | None = None,
    store: KitStore | None = None,
    patience: timedelta = PATIENCE,
    **options: Any,  # noqa: ANN401 - those of `handle.enqueue`
) -> CrashReport:
    """Run a job undisturbed, then with each kind of crash at each point of it, and compare what it has done.

    The points lie before, inside and after each step, and at the end of each attempt. At each, in a run of its own: the
    worker is killed, its lease is lost, it gets a SIGTERM, or the job is given to another worker while the first is
    held up and later goes on. Then the run goes on to its end.

    `check` gives what the job has done, as a value that can be compared; without it, its result. With a parameter it is
    given the `Env` of the run, to look at what was enqueued. `before` is called
    before each run, to take back what the last one did. Both may be `async`. `events` are emitted when the run waits
    for them: `(name, key, payload)`. Every run begins with an empty store: one of the kind that `env`
    has, or the `store` given, else in memory.

    Raises:
        CrashDifference: effects differ (an `AssertionError`); its `report` names each point.
        RequestInvalid: two undisturbed runs differ, or the run waits for an event that is not in `events`.
    """
    __tracebackhide__ = True
    if not isinstance(job, JobHandle):
        raise RequestInvalid(f"{job!r} is not a job", fix="pass the function declared with @job")
    async with AsyncExitStack() as ending:
        if store is None:
            store = MemoryStore() if env is None else await ending.enter_async_context(env.store.another())
        trial = Trial(
            handle=job,
            payload=payload,
            events=tuple(Emission(*event) for event in events),
            check=check,
            before=before,
            store=store,
            jobs=jobs,
            patience=patience,
            options=options,
        )
        ending.callback(carry_tasks())
        return await _everywhere(trial, crashes)


async def _everywhere(trial: Trial, crashes: Sequence[Crash]) -> CrashReport:
    __tracebackhide__ = True
    survey = Survey()
    expected = await trial.run(survey)
    trial = replace(trial, jobs=survey.jobs)  # known from the start, no worker has to be made anew for them
    _refuse_unsteady(expected, await trial.run(Survey()))
    tried = [(spot, crash) for spot in survey.spots for crash in crashes]
    differences: list[Difference] = []
    for spot, crash in tried:
        actual = await trial.run(Strike(spot, crash))
        if (actual.state, actual.effects) != (expected.state, expected.effects):
            differences.append(Difference(spot, crash, expected, actual))
    report = CrashReport(job=trial.handle.name, expected=expected, tried=tried, differences=differences)
    if differences:
        raise CrashDifference(report)
    return report


def _refuse_unsteady(first: Seen, second: Seen) -> None:
    if (first.state, first.effects) != (second.state, second.effects):
        raise RequestInvalid(
            "two undisturbed runs do not have the same effects, so crashes cannot be told by them:"
            f" {first.effects!r} ({first.state.value}), then {second.effects!r} ({second.state.value})",
            fix="take back what a run did with before=, and leave ids and times out of what check= gives",
        )


async def _emits(env: Env, left: list[Emission]) -> bool:
    """Emit the first event that a run waits for; False when none does."""
    for view in await env.jobs(state=State.SUSPENDED):
        for wait in view.waiting_on:
            for one in left:
                if (one.name, one.key) == (wait.event, wait.key):
                    left.remove(one)
                    await env.emit(one.name, one.key, one.payload, tenant=view.tenant)
                    return True
    return False


async def _checked(check: Callable[..., object], env: Env) -> object:
    try:
        takes_env = bool(inspect.signature(check).parameters)
    except (TypeError, ValueError):  # a callable that does not say
        takes_env = False
    return await _called(partial(check, env) if takes_env else check)


async def _result(env: Env, view: JobView) -> object:
    return await env.result(view) if view.state is State.DONE else None


async def _called(function: Callable[[], object] | None) -> object:
    value = None if function is None else function()
    return await value if inspect.isawaitable(value) else value


def _stuck(view: JobView) -> RequestInvalid:
    waits = ", ".join(f"{wait.event!r} with key {wait.key!r}" for wait in view.waiting_on if wait.event is not None)
    return RequestInvalid(
        f"{view.name} is {view.state.value} ({view.state_reason}) and nothing will ever make it go on"
        + (f": it waits for the event {waits}" if waits else ""),
        fix="name the events it waits for in events=[(name, key, payload), …]",
    )
