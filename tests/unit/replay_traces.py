"""Traces made by hand, and what the code at hand would make of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from app.domain.job import Counters, JobId, RunId
from app.domain.snapshot import JobView
from app.domain.state import State
from app.domain.step import Place, RunHistory, StepKind, StepView, WaitView
from app.jobs.handle import JobHandle
from app.jobs.registry import Registry
from app.replay.attempt import ReplayOptions
from app.replay.check import Check, Finding
from app.replay.trace import Trace

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
JOB_ID = JobId(UUID("01900000-0000-7000-8000-000000000001"))
CHILD_ID = JobId(UUID("01900000-0000-7000-8000-000000000002"))
NAME = "ship.job"
QUICK = ReplayOptions(seconds=5.0, result_max_bytes=1000)


def step(name: str, number: int = 0, value: str | None = None, **fields: Any) -> StepView:
    """Give a recorded step, of the kind run unless another is named."""
    defaults: dict[str, Any] = {"kind": StepKind.RUN, "code_version": "1.0.0", "claim_no": 1, "seq": number}
    place = Place(fields.pop("branch", ""), number)
    times: dict[str, Any] = {"started_at": NOW, "ended_at": NOW + timedelta(milliseconds=1)}
    return StepView(name=name, place=place, value=value, **times, **{**defaults, **fields})


def wait(name: str, number: int = 0, kind: StepKind = StepKind.SLEEP, **fields: Any) -> WaitView:
    """Give a wait that is not over."""
    place = Place(fields.pop("branch", ""), number)
    return WaitView(name=name, place=place, kind=kind, began_at=NOW, code_version="1.0.0", **fields)


def trace(*records: StepView | WaitView, payload: str = "{}", **fields: Any) -> Trace:
    """Give the trace of a suspended job, claimed once, that has recorded some steps and waits."""
    facts: dict[str, Any] = {
        "id": JOB_ID,
        "run_id": RunId(JOB_ID),
        "name": NAME,
        "queue": "default",
        "state": State.SUSPENDED,
        "state_reason": None,
        "priority": 5,
        "tenant": "default",
        "counters": Counters(0, 1, 0, 0),
        "max_attempts": 3,
        "max_crashes": 3,
        "created_at": NOW,
        "payload": payload,
    }
    job = JobView(**{**facts, **fields})
    steps = tuple(record for record in records if isinstance(record, StepView))
    waits = tuple(record for record in records if isinstance(record, WaitView))
    return Trace(job=job, history=RunHistory(steps=steps, waits=waits))


def found(of: Trace, *handles: JobHandle[Any, Any], options: ReplayOptions = QUICK) -> Finding:
    """Check one trace against some job types."""
    return Check(Registry(handles), options).check(of)
