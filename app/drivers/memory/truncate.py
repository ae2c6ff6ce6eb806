"""Taking a run back: to before one of its steps, or to nothing. Called by retry and fork."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import uuid4

from ...domain.errors import NotFound
from ...domain.job import RunId
from ...domain.step import StepView
from .cancel import cancel_children, is_kept
from .rows import Envelope
from .run_rows import Step, WaitRow
from .store import Store


def steps_from(store: Store, envelope: Envelope, from_step: str) -> list[Step]:
    """Give a step of a job's run and all that were recorded after it.

    Raises:
        NotFound: the run has not recorded it.
    """
    steps = store.runs.steps_of(envelope.run_id)
    place = next((place for place, step in enumerate(steps) if step.view.name == from_step), None)
    if place is None:
        raise NotFound(
            f"the run of job {envelope.job.id} has no recorded step {from_step!a}",
            fix="name a step that the run has recorded",
        )
    return steps[place:]


def drop_steps(store: Store, envelope: Envelope, steps: list[Step], now: datetime) -> None:
    """Delete steps of a run and what it waits for, with the children; calls that failed before those steps stay."""
    for step in steps:
        del store.runs.steps[envelope.run_id][step.view.name]
    _drop_but(store, envelope, kept_before(store, envelope, steps[0]), now)


def kept_before(store: Store, envelope: Envelope, cut: Step | None) -> list[WaitRow]:
    """Give the calls of a run that have failed or ended, of those that began before a step; before the end without."""
    waits = store.runs.waits_of(envelope.job.id)
    return [wait for wait in waits if is_kept(store, wait) and (cut is None or _is_before(wait, cut.view))]


def _is_before(wait: WaitRow, step: StepView) -> bool:
    if wait.place.branch == step.place.branch:
        return wait.place.number < step.place.number
    return wait.began_at <= step.ended_at


def _drop_but(store: Store, envelope: Envelope, kept: list[WaitRow], now: datetime) -> None:
    dropped = [wait for wait in store.runs.waits_of(envelope.job.id) if wait not in kept]
    for wait in dropped:
        store.runs.drop_wait(envelope.job.id, wait.name)
    cancel_children(store, envelope.job.id, dropped, now)


def begin_anew(store: Store, envelope: Envelope, now: datetime) -> Envelope:
    """Give a job a new, empty run; children that the old one waits for are cancelled."""
    _drop_but(store, envelope, [], now)
    store.runs.clear(envelope.job.id, envelope.run_id)
    return replace(envelope, run_id=RunId(uuid4()))
