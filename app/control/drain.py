"""A drain as operators see it: this process's, and asking for it.

The process's own status is read without the store, so that it can be shown while the store is away. Called by the HTTP
routes and the admin listener.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..domain.drain import ASKED_FOR_BY
from ..lifecycle.status import DrainStatus, HeldRun
from .render import Document

MOST_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainControl:
    """Shows this process's drain and begins it; both may be asked for from any thread.

    `begin` takes who asks, as a reason people read; on a process that leaves already it joins.
    """

    status: Callable[[], DrainStatus]
    begin: Callable[[str], object]

    def here(self, *, tenant: str | None = None) -> Document:
        """Give this process's drain; of the runs it holds list only one tenant's, if named."""
        return drain_document(self.status(), tenant=tenant)

    def start(self, *, by: str, tenant: str | None = None) -> Document:
        """Begin this process's drain, or join the one under way, and give it. Idempotent."""
        self.begin(f"{ASKED_FOR_BY}{by}")
        return self.here(tenant=tenant)


def drain_document(status: DrainStatus, *, tenant: str | None = None) -> Document:
    """Give one process's drain; of a great many held runs only the first are listed, and all are counted."""
    listed = [run for run in status.held if tenant in {None, run.tenant}]
    return {
        "state": status.state.value,
        "role": "+".join(status.roles),
        "phase": None if status.phase is None else status.phase.value,
        "reason": status.reason,
        "signal": status.signal,
        "started_at": status.started_at,
        "deadline_at": status.deadline_at,
        "remaining_ms": None if status.remaining is None else round(status.remaining * 1000),
        "in_flight_count": len(status.held),
        "in_flight": [_held_document(run, status.now) for run in listed[:MOST_SHOWN]],
        "completed": status.tally.completed,
        "interrupted": status.tally.interrupted,
        "abandoned": status.tally.abandoned,
        "other": status.tally.other,
        "roles": dict(status.roles),
    }


def _held_document(run: HeldRun, now: float) -> Document:
    return {
        "job_id": run.job_id,
        "job_type": run.job_type,
        "step": run.step,
        "told_ms": None if run.told_at is None else max(0, round((now - run.told_at) * 1000)),
        "acknowledged": run.is_acknowledged,
    }
