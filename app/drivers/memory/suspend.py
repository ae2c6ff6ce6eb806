"""Suspend: store what a run waits for, enqueue the children it calls, and decide whether it has to wait at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple, TypeAlias

from ...domain.event import EventView
from ...domain.job import LANE_RESUMED, Enqueued, JobId, NewJob
from ...domain.outcome import Settlement, Suspended
from ...domain.step import NewWait
from ...domain.step_errors import called_in_circle, waiting_chain
from ..protocol import Wake
from .enqueue import enqueue_all_at
from .rows import Dormant, Finished, Ready, Running, Token
from .run_rows import WaitRow
from .store import Store
from .waking import look_at_child, record_end

# The job that each new call of each suspending job runs, by the job's id and the call's name.
Children: TypeAlias = Mapping[tuple[JobId, str], JobId]


class Suspending(NamedTuple):
    """A claim that gives its worker back, and the children that were stored for it."""

    job_id: JobId
    running: Running
    children: Children


def store_children(store: Store, settlements: Sequence[Settlement], now: datetime) -> Children:
    """Enqueue the children of every suspension that will be settled; what refuses one refuses the call.

    Raises:
        OutlastError: what refused a child. Nothing is stored then.
    """
    new = {
        (settlement.token.job_id, wait.name): wait.child
        for settlement in settlements
        if isinstance(settlement.outcome, Suspended) and store.fenced(settlement.token, now) is not None
        for wait in settlement.outcome.waits
        if wait.child is not None and _is_new(store, settlement.token.job_id, wait)
    }
    stored = enqueue_all_at(
        store, now, tuple(new.values()), is_part=True, refuse=lambda answers: _refuse_circles(store, new, answers)
    )
    store.runs.called.update(
        answer.id for answer, child in zip(stored, new.values(), strict=True) if answer.id != child.id
    )
    return {call: child.id for call, child in zip(new, stored, strict=True)}


def _refuse_circles(store: Store, new: Mapping[tuple[JobId, str], NewJob], answers: Sequence[Enqueued]) -> None:
    """Refuse calls that are answered by a job which waits for the caller, in this batch too.

    Raises:
        CallCycle: naming the jobs.
    """
    if all(answer.id == child.id for answer, child in zip(answers, new.values(), strict=True)):
        return
    callers: defaultdict[JobId, list[JobId]] = defaultdict(list)
    for job_id, wait in store.runs.all_waits():
        if wait.child_id is not None and wait.is_awaited and not store.has_ended(job_id):
            callers[wait.child_id].append(job_id)
    for ((caller, step), child), answer in zip(new.items(), answers, strict=True):
        chain = None if answer.id == child.id else waiting_chain(callers, answer.id, caller)
        if chain is not None:
            raise called_in_circle(step, child, chain)
        callers[answer.id].append(caller)


def suspended(store: Store, one: Suspending, waits: Sequence[NewWait], now: datetime) -> Token:
    """Store the waits that are new and give where the job goes: suspended, or ready when one is over already."""
    job_id = one.job_id
    for wait in waits:
        if _is_new(store, job_id, wait):
            _begin(store, job_id, _row(store, one, wait, now), is_from_now=wait.from_now)
    asked = {wait.name for wait in waits}
    for row in store.runs.waits_of(job_id):
        # What it asks for again it has not heard the end of, whatever it was told before.
        store.runs.waits[job_id][row.name] = asks = replace(row, is_awaited=row.name in asked)
        if asks.is_awaited:
            look_at_child(store, job_id, asks, now)
    counters, rank = one.running.counters.uncounted(), store.rank(job_id, LANE_RESUMED)
    if any(_is_over(store, job_id, wait.name) for wait in waits):
        return Ready(counters=counters, rank=rank, seq=store.next_seq(), since=now)
    if any(row.due_at is not None for row in store.runs.waits_of(job_id)):
        store.bell.add(Wake.DELAYED)
    return Dormant(counters=counters, rank=rank, since=now, kind=waits[0].kind)


def _is_new(store: Store, job_id: JobId, wait: NewWait) -> bool:
    recorded = store.runs.steps.get(store.envelopes[job_id].run_id, {})
    return not (wait.is_known or wait.name in store.runs.waits_by_name(job_id) or wait.name in recorded)


def _row(store: Store, one: Suspending, wait: NewWait, now: datetime) -> WaitRow:
    return WaitRow(
        name=wait.name,
        kind=wait.kind,
        place=wait.place,
        began_at=now,
        code_version=store.workers[one.running.worker_id].about.code_version,
        due_at=wait.until if wait.delay is None else now + wait.delay,
        tenant=None if wait.event is None else store.envelopes[one.job_id].job.tenant,
        event=wait.event,
        key=wait.key,
        child_id=one.children.get((one.job_id, wait.name)),
    )


def _begin(store: Store, job_id: JobId, row: WaitRow, *, is_from_now: bool) -> None:
    """Store a wait, or its step when the event it is for was there before."""
    event = None if row.event is None or is_from_now else _stored_event(store, job_id, row)
    if event is None:
        store.runs.waits[job_id][row.name] = row
    else:
        record_end(store, job_id, row, row.began_at, event=event)


def _stored_event(store: Store, job_id: JobId, row: WaitRow) -> EventView | None:
    """Give the first event that is for a run, by its job's `events_from`, and that it has not taken."""
    envelope = store.envelopes[job_id]
    taken = store.runs.taken(envelope.run_id)
    return next(
        (
            event
            for event in store.runs.events
            if (event.tenant, event.name, event.key) == (row.tenant, row.event, row.key)
            and event.emitted_at >= envelope.events_from
            and event.seq not in taken
        ),
        None,
    )


def _is_over(store: Store, job_id: JobId, name: str) -> bool:
    wait = store.runs.waits_by_name(job_id).get(name)
    if wait is None or wait.child_id is None:
        return wait is None
    child = store.tokens.get(wait.child_id)
    return child is None or isinstance(child, Finished)
