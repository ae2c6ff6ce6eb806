"""Taking a run back: to before one of its steps, or to nothing. Called by retry and fork."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import uuid4

from ...domain.errors import NotFound
from ...domain.job import RunId
from .cancel import drop_waits
from .rows import Envelope
from .run_rows import Step
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
    """Delete steps of a run and all its waits; children it waits for are cancelled."""
    for step in steps:
        del store.runs.steps[envelope.run_id][step.view.name]
    drop_waits(store, envelope.job.id, now)


def begin_anew(store: Store, envelope: Envelope, now: datetime) -> Envelope:
    """Give a job a new, empty run; children that the old one waits for are cancelled."""
    drop_waits(store, envelope.job.id, now)
    store.runs.clear(envelope.job.id, envelope.run_id)
    return replace(envelope, run_id=RunId(uuid4()))
