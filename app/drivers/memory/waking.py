"""The end of waits: its step is recorded, the wait goes, and a run that is suspended becomes ready, all in one go.

Every way a wait can end comes through `end_wait`, or for a child without a result through `tell`. Called by the sweeps,
by `emit`, and by every verb that ends jobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from ...domain.event import EventView
from ...domain.job import JobId
from ...domain.state import State
from ...domain.step import StepView
from ..runs import Swept
from .rows import Dormant, Finished
from .run_rows import Step, WaitRow
from .store import Store


def wake(store: Store, batch: int) -> int:
    """End waits whose time has come, the longest due first; see `RunStore.wake`."""
    with store.statement() as now:
        due = sorted(
            ((wait.due_at, job_id, *wait.order), wait)
            for job_id, wait in store.runs.all_waits()
            if wait.due_at is not None and wait.due_at <= now
        )[:batch]
        woken = _look_at_called(store, now)
        for (_, job_id, *_), wait in due:
            end_wait(store, job_id, wait, now)
        return len(due) + woken


def wake_in(store: Store, now: datetime) -> timedelta | None:
    """Give the time to the next end of a wait; for a caller in a statement."""
    ends = [wait.due_at for _, wait in store.runs.all_waits() if wait.due_at is not None]
    if _ended_of_called(store):
        ends.append(now)
    return min(ends) - now if ends else None


def sweep_waits(store: Store, after: JobId | None, batch: int) -> Swept:
    """Look at a batch of calls of suspended jobs for children that have ended; see `RunStore.sweep_waits`."""
    with store.statement() as now:
        calls = [
            (wait.child_id, job_id)
            for job_id, wait in store.runs.all_waits()
            if wait.child_id is not None and isinstance(store.tokens[job_id], Dormant)
        ]
        rest = sorted({child for child, _ in calls if after is None or child > after})
        wake_parents(store, rest[:batch], now)
        woken = sum(not isinstance(store.tokens[job_id], Dormant) for job_id in {job_id for _, job_id in calls})
        return Swept(woken=woken, next_after=rest[batch - 1] if len(rest) > batch else None)


def _look_at_called(store: Store, now: datetime) -> int:
    """Wake what waits for a job that was there before its call and has ended; gives the number of runs."""
    ended = _ended_of_called(store)
    store.runs.called -= ended
    callers = [job_id for job_id, wait in store.runs.all_waits() if wait.child_id in ended]
    asleep = {job_id for job_id in callers if isinstance(store.tokens[job_id], Dormant)}
    wake_parents(store, ended, now)
    return sum(not isinstance(store.tokens[job_id], Dormant) for job_id in asleep)


def _ended_of_called(store: Store) -> set[JobId]:
    return {child for child in store.runs.called if isinstance(store.tokens.get(child), Finished | None)}


def wake_parents(store: Store, ended: Iterable[JobId], now: datetime) -> None:
    """Let every run know that waits for one of the jobs that have just ended; for a caller in a statement."""
    children = set(ended)
    waits = tuple(store.runs.all_waits()) if children else ()
    for job_id, wait in waits:
        if wait.child_id in children:
            look_at_child(store, job_id, wait, now)


def look_at_child(store: Store, job_id: JobId, wait: WaitRow, now: datetime) -> None:
    """End a call whose child is done, tell of one that will give no result; leave every other wait.

    A run that was told of the failure may have gone on from it: whatever becomes of the child then, the call has failed
    until it is asked for again.
    """
    if wait.child_id is None:
        return
    match store.tokens.get(wait.child_id):
        case Finished(state=State.DONE, result=result) if wait.is_awaited:
            end_wait(store, job_id, wait, now, value=result)
        case Finished(state=State.DEAD | State.CANCELLED) | None:
            tell(store, job_id, wait)
        case _:
            pass


def end_wait(
    store: Store,
    job_id: JobId,
    wait: WaitRow,
    now: datetime,
    *,
    value: str | None = None,
    event: EventView | None = None,
) -> None:
    """Record a wait's step, under the last claim and the code that began it, and make its run ready."""
    record_end(store, job_id, wait, now, value=value, event=event)
    store.runs.drop_wait(job_id, wait.name)
    _rouse(store, job_id)


def record_end(
    store: Store, job_id: JobId, wait: WaitRow, now: datetime, *, value: str | None = None, event: EventView | None
) -> None:
    """Record the step that a wait has become."""
    view = StepView(
        seq=store.runs.next_seq(),
        name=wait.name,
        kind=wait.kind,
        place=wait.place,
        value=value if event is None else event.payload,
        claim_no=store.tokens[job_id].counters.claim_no,
        code_version=wait.code_version,
        started_at=wait.began_at,
        ended_at=now,
        has_event=event is not None,
        child_id=wait.child_id,
    )
    steps = store.runs.steps[store.envelopes[job_id].run_id]
    steps.setdefault(wait.name, Step(view=view, event_seq=None if event is None else event.seq))


def tell(store: Store, job_id: JobId, wait: WaitRow) -> None:
    """Make a run ready whose child will give no result, once: the wait stays, and shows why."""
    if wait.is_awaited:
        store.runs.waits[job_id][wait.name] = replace(wait, is_awaited=False)
        _rouse(store, job_id)


def _rouse(store: Store, job_id: JobId) -> None:
    match store.tokens[job_id]:
        case Dormant(counters=counters, rank=rank):
            store.make_ready(job_id, counters, rank=rank)
        case _:  # it runs, or is ready, held or dead: the next attempt finds the step
            pass
