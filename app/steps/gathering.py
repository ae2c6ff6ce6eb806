"""Branches of a run side by side: each in a task and an order of its own, all of them to their end.

Called by `ctx.step.gather`. A branch that fails does not stop the others: what they have recorded stays recorded.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any

from ..domain.step import Place
from .branch import WHERE, Branch, Where
from .history import placed, said
from .recorder import Recorder
from .suspension import Suspension


@dataclass(slots=True)
class _End:
    """A branch, and how it ended: with a value, with an error, or not yet."""

    branch: Branch
    value: object = None
    error: BaseException | None = None
    is_suspended: bool = False


async def gather(recorder: Recorder, awaitables: Sequence[Awaitable[Any]]) -> tuple[Any, ...]:
    """Run branches side by side and give their values in order.

    Raises:
        Suspension: a branch waits, and all others have ended or wait.
        Exception: else the first error in declared order, once all branches have ended. Before both what a step call
            raised because the run was told to stop, also if its branch has caught it.
        ReplayDiverged: the run has recorded a step there, or more branches.
        StepInvalid: asked for in a task that is no branch's own, or inside a step.
    """
    try:
        parent, place = await _ask(recorder, len(awaitables))
        ends = [_End(Branch(parent.inner(f"{place.number}.{index}"), None)) for index in range(len(awaitables))]
        name = None if parent.task is None else parent.task.get_name()  # a loop that hangs is traced to its job by it
        async with asyncio.TaskGroup() as group:
            for awaitable, end in zip(awaitables, ends, strict=True):
                group.create_task(_run(recorder, awaitable, end), name=name)
    finally:
        _close(awaitables)
    return _joined(recorder, parent, ends)


async def _ask(recorder: Recorder, count: int) -> tuple[Branch, Place]:
    """Give the branch that branches are asked for in, and their place there."""
    history = await recorder.loaded()
    branch = recorder.own_branch("ctx.step.gather")
    place = branch.next_place()
    if (other := history.alone(place) or history.beside(place, count)) is not None:
        recorder.diverge(
            other, f"the code asks for {count} branches as {placed(place)}, where {said(other)}, is recorded"
        )
    return branch, place


async def _run(recorder: Recorder, awaitable: Awaitable[Any], end: _End) -> None:
    """Run one branch to its end; only a cancellation leaves through here.

    One of this branch alone is kept as its error: the group would take the branch for one that ended without a value.
    """
    branch = end.branch
    task = branch.task = asyncio.current_task()
    WHERE.set(Where(recorder, branch))
    try:
        end.value = await awaitable
        if not branch.is_suspended:
            recorder.leave(branch)
    except GeneratorExit:
        raise
    except BaseException as error:
        end.error = error
        if not branch.is_suspended:
            recorder.stop.note(error)
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
    end.is_suspended = branch.is_suspended


def _joined(recorder: Recorder, parent: Branch, ends: Sequence[_End]) -> tuple[Any, ...]:
    if recorder.diverged is not None:
        raise recorder.diverged
    # A branch that was told to stop has work left that nothing but another attempt does: it does not wait for the rest.
    if recorder.stop.error is not None:
        raise recorder.stop.error
    errors = [(end.branch, end.error) for end in ends if end.error is not None and not end.is_suspended]
    if any(end.is_suspended for end in ends):
        parent.is_suspended = True
        recorder.failed_beside += errors
        raise Suspension("a branch of this run waits")
    if errors:
        raise errors[0][1]
    return tuple(end.value for end in ends)


def _close(awaitables: Sequence[Awaitable[Any]]) -> None:
    """Close what was refused or cancelled before it began, so that nothing warns of it; what has ended stays so."""
    for awaitable in awaitables:
        if inspect.iscoroutine(awaitable):
            awaitable.close()
