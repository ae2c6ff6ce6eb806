"""One attempt at a run: what it asks for in order, what answers it, what it records and what it waits for.

Everything a body does through `ctx.step` comes through here, on the loop of its worker. The worker reads off it how the
body ended: a suspension, a divergence or a stop stands, whatever the body made of the exception.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NoReturn

from ..domain.errors import DriverUnavailable, LeaseLost, ReplayDiverged, StepDuplicate
from ..domain.job import ClaimedJob
from ..domain.step import (
    MAIN_BRANCH,
    STEP_NAME_MOST,
    NewStep,
    NewWait,
    Place,
    RunHistory,
    StepKind,
    StepView,
    WaitView,
)
from ..domain.step_errors import StepInvalid
from ..domain.text import is_printable
from ..domain.verdict import GONE
from .branch import WHERE, Branch, Inside, Where, own_order_of
from .history import NOTHING, History, Record, number_in, placed, said
from .points import Moment, Point
from .signal import Signal, Stop
from .suspension import Suspension
from .tools import Tools, run_over, while_held
from .waits import lasted

_MAY_BE_ANYWHERE = (StepKind.RUN, StepKind.TRANSACTION)


class Recorder:
    """The steps of one attempt. `task` runs the body; `store_now` reckons the store's time; `step_timeout` bounds one.

    `steps` counts the steps this attempt has passed, `replayed` those of them that were answered from the record,
    `reached` is the one asked for last. `is_over` is set once the body has ended: what it left running begins no step.
    `failed_beside` are errors that nothing has raised, as other branches wait, each with its branch.
    """

    def __init__(
        self,
        tools: Tools,
        job: ClaimedJob,
        *,
        signal: Signal,
        task: asyncio.Task[Any] | None,
        store_now: Callable[[], datetime],
        step_timeout: timedelta | None = None,
    ) -> None:
        self.tools = tools
        self.job = job
        self.signal = signal
        self.store_now = store_now
        self.step_timeout = step_timeout
        self.main = Branch(MAIN_BRANCH, task)
        self.steps = 0
        self.replayed = 0
        self.reached: str | None = None
        self.diverged: ReplayDiverged | None = None
        self.stop = Stop(signal)
        self.failed_beside: list[tuple[Branch, BaseException]] = []
        self.is_over = False
        self._asked: dict[str, Place] = {}
        self._pending: dict[str, tuple[NewWait, float]] = {}  # and when it was asked for
        self._passed: list[Place] = []
        self._told_failed: dict[str, Place] = {}
        self._missed: dict[str, Place] = {}
        self._history: History | None = None
        self._loading: asyncio.Lock | None = None  # made where there is something to load

    # --- read by the worker ------------------------------------------------------------------------------------------

    @property
    def waits(self) -> tuple[NewWait, ...]:
        """Give what the run waits for, once it is suspended; else nothing.

        What is to last a while has lasted since it was asked for, also beside a branch that went on.
        """
        if not self.main.is_suspended:
            return ()
        now = self.tools.monotonic()
        return tuple(lasted(wait, timedelta(seconds=now - at)) for wait, at in self._pending.values())

    @property
    def is_loaded(self) -> bool:
        """Say whether it is known what the run has recorded."""
        return self._history is not None

    @property
    def has_waits(self) -> bool:
        """Say whether the store holds waits of this run."""
        return self._history is not None and bool(self._history.waits)

    @property
    def asked(self) -> Mapping[str, Place]:
        """Give what was asked for in this attempt by name, and where."""
        return self._asked

    def forgets(self, *, is_end: bool) -> tuple[str, ...]:
        """Give the calls that failed in this attempt's eyes and after which nothing is recorded: to be made anew.

        With `is_end`, of a job that is dead, the required events that did not come too: a retry by hand waits again.
        """
        heard = self._told_failed | self._missed if is_end else self._told_failed
        return tuple(name for name, place in heard.items() if not self._has_gone_on(place))

    async def finish(self) -> None:
        """Look, once the body has returned, whether all that is recorded was asked for.

        Raises:
            ReplayDiverged: it was not.
        """
        if self.main.is_suspended or self.diverged is not None:
            return
        if self._history is None:
            try:
                with self.signal.in_store():
                    self._history = NOTHING if self._is_new else History(await self._read())
            except DriverUnavailable:
                return  # a body that never asked for a step, and has returned: that is not lost to an outage
        self.leave(self.main)

    # --- asking ------------------------------------------------------------------------------------------------------

    async def ask(self, name: str, kind: StepKind) -> tuple[Place, Record | None]:
        """Ask for the next step of the current branch: gives its place, and its record where there is one.

        Raises:
            ReplayDiverged: the run has recorded something else there, or this elsewhere.
            StepDuplicate: the name was asked for before in this attempt.
            Aborted: nothing is recorded, and the run was told to stop.
            StepInvalid: the name cannot be one, or the step is asked for where it cannot be.
        """
        history = self._history or await self.loaded()
        branch = self._branch_for(name, kind)
        if name in self._asked:
            raise StepDuplicate(
                f"the step {name!r} is asked for twice in one run",
                fix="give each step a name of its own; in a loop put the item into it, like f'send-{item.id}'",
                step=name,
            )
        place = branch.next_place()
        self._asked[name] = place
        self.reached = name
        found, other = history.at(place, name, kind)
        if other is not None:
            self.diverge(
                other,
                f"the code asks for {kind.value} step {name!r} as {placed(place)}, where {said(other)}, is recorded",
            )
        if isinstance(found, StepView):
            self.steps += 1
            self.replayed += 1
            self._passed.append(place)
        elif found is None:
            if self.tools.at is not None:
                await self.reach(Moment.BEFORE, name, kind)
            self.stop.raise_if_told()
        return place, found

    async def loaded(self) -> History:
        """Give the history, read on first use; a job's first claim on a run of its own has none."""
        if self._history is None and self._is_new:
            self._history = NOTHING
        if self._history is None:
            self._loading = self._loading or asyncio.Lock()
            async with self._loading:
                if self._history is None:
                    self._history = History(await while_held(self._read, self.signal))
        return self._history

    def here(self) -> Where:
        """Give where the current code is in this run."""
        where = WHERE.get()
        return Where(self, self.main) if where is None or where.recorder is not self else where

    def own_branch(self, what: str) -> Branch:
        """Give the branch of the current code for what may have to wait; `what` names it.

        Raises:
            StepInvalid: the code is in another task than the branch's own, or inside a step.
        """
        where = self.here()
        self._refuse_nested(where, what)
        if asyncio.current_task() is not where.branch.task:
            raise StepInvalid(
                f"{what} is asked for in a task that the run knows nothing of, so it cannot suspend there",
                fix="use ctx.step.gather for branches that run side by side, instead of asyncio.gather or a TaskGroup",
            )
        self._refuse_over(where.branch)
        return where.branch

    def inside(self, name: str) -> Inside:
        """Mark the current code as the body of a step, in which no other step can be asked for."""
        return Inside(Where(self, self.here().branch, name))

    def leave(self, branch: Branch) -> None:
        """End a branch that has returned.

        Raises:
            ReplayDiverged: something is recorded in it that was not asked for.
        """
        history = None if self.stop.error is not None else self._history  # cut short is no other way
        if history is not None and (left := history.unasked(branch.path, self._asked)) is not None:
            self.diverge(left, f"the code never asks for {said(left)}, which is recorded")

    # --- recording ---------------------------------------------------------------------------------------------------

    async def record(self, step: NewStep) -> None:
        """Record a step; durable when this returns. Repeated, while the claim may be held, until it is known.

        Raises:
            LeaseLost: the claim is gone: nothing this attempt does is stored any more.
            RequestInvalid: the store refuses the value.
        """
        store, token, signal = self.tools.store, self.job.token, self.signal
        try:
            with signal.in_store():
                is_held = await store.record_step(token, step)
        except DriverUnavailable:
            if signal.first in GONE:
                raise
            is_held = await while_held(lambda: store.record_step(token, step), signal)
        if not is_held:
            raise LeaseLost(
                f"the claim on job {self.job.token.job_id} is gone, step {step.name!r} is not recorded",
                fix="end soon; whoever took the job over runs it from its last recorded step",
            )
        self.passed(step.place)
        if self.tools.at is not None:
            await self.reach(Moment.AFTER, step.name, step.kind)

    async def is_recorded(self, name: str) -> bool:
        """Ask the store whether a step is recorded now; again while it is unavailable and the claim may be held."""
        return any(step.name == name for step in (await while_held(self._read, self.signal)).steps)

    def passed(self, place: Place) -> None:
        """Count a step that is recorded now."""
        self.steps += 1
        self._passed.append(place)

    def suspended(self, wait: NewWait) -> Suspension:
        """Note that the current branch waits, and give what it is to raise: it ends there in this attempt."""
        branch = self.here().branch
        self._pending[wait.name] = wait, self.tools.monotonic()
        branch.is_suspended = True
        return Suspension(f"step {wait.name!r} waits")

    def has_failed(self, wait: WaitView) -> bool:
        """Say whether the body is to hear that a call failed: its child has, or had when the run went on from it."""
        failed = wait.has_failed or (self._history is not None and self._history.goes_on_behind(wait.place))
        if failed:
            self._told_failed[wait.name] = wait.place
        return failed

    def missed(self, step: StepView) -> None:
        """Note that the body hears that an event which it requires did not come in time."""
        self._missed[step.name] = step.place

    def diverge(self, record: Record, what: str) -> NoReturn:
        """Note that the code does not match the run.

        Raises:
            ReplayDiverged: always. Details `step` and `code_version`, those of the record.
        """
        self.diverged = ReplayDiverged(
            f"{what} by code {record.code_version or 'without a version'}",
            fix="run the code that recorded it, or retry the job fresh or from an earlier step",
            step=record.name,
            code_version=record.code_version,
        )
        raise self.diverged

    async def reach(self, moment: Moment, name: str, kind: StepKind, session: object | None = None) -> None:
        """Let whoever stands at the points of attempts do what it came for."""
        if self.tools.at is not None:
            point = Point(job=self.job, signal=self.signal, moment=moment, step=name, kind=kind, session=session)
            await self.tools.at(point)

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _is_new(self) -> bool:
        """Say whether nothing can be recorded yet; a fork begins with a history, and has a parent."""
        token = self.job.token
        return token.claim_no == 1 and self.job.run_id == token.job_id and self.job.parent_id is None

    async def _read(self) -> RunHistory:
        return await self.tools.store.history(self.job.token.job_id, self.job.run_id)

    def _branch_for(self, name: str, kind: StepKind) -> Branch:
        if not is_printable(name, STEP_NAME_MOST):
            raise StepInvalid(
                f"{name!r} is not the name of a step", fix=f"use 1 to {STEP_NAME_MOST} printable characters"
            )
        if kind not in _MAY_BE_ANYWHERE:
            return self.own_branch(_titled(kind, name))
        where = self.here()
        if where.inside is not None:
            self._refuse_nested(where, _titled(kind, name))
        self._refuse_over(where.branch)
        own = where.branch.task
        # Asking which loop runs is a call to the operating system, and steps are asked for on the body's.
        task = asyncio.current_task(None if own is None else own.get_loop())
        if task is own:
            return where.branch
        # What has to wait is refused there, so that all that can differ between attempts is when a step is asked for.
        branch = Branch(where.branch.inner(own_order_of(name)), task)
        WHERE.set(Where(self, branch))
        return branch

    def _refuse_nested(self, where: Where, what: str) -> None:
        if where.inside is not None:
            raise StepInvalid(
                f"{what} is asked for inside step {where.inside!r}, which a replay does not enter",
                fix="ask for it in the job's body, before or after that step",
            )

    def _refuse_over(self, branch: Branch) -> None:
        """Raise again what the body has caught and gone on from, and refuse what has outlived it."""
        if self.is_over:
            raise run_over(self.job)
        if self.diverged is not None:
            raise self.diverged
        if branch.is_suspended or self.main.is_suspended:
            raise Suspension("this run is suspended")

    def _has_gone_on(self, place: Place) -> bool:
        """Say whether a step after a place is recorded in its branch, or in a gather of that: then, or now."""
        if self._history is not None and self._history.goes_on_behind(place):
            return True
        numbers = (number_in(place.branch, passed) for passed in self._passed)
        return any(number is not None and number > place.number for number in numbers)


def _titled(kind: StepKind, name: str) -> str:
    return f"{kind.value} step {name!r}"
