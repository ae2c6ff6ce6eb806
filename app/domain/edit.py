"""What operators change of a job that has not begun or waits: the fields, and what a run-now finds.

Values and rules only. Called by the drivers, and by control, which checks the bounds of the fields.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from .snapshot import JobView
from .state import TERMINAL, State

# A patch finds its job here; a new time only where the job waits for one, or for a worker.
EDITABLE = frozenset({State.DELAYED, State.READY, State.SUSPENDED, State.HELD})
RESCHEDULABLE = frozenset({State.DELAYED, State.READY})
DELETABLE = TERMINAL | {State.HELD}


class RunNowVerdict(StrEnum):
    """What a run-now has found. The last two: there was nothing to do."""

    MADE_READY = "made_ready"
    SLEEP_ENDED = "sleep_ended"
    ALREADY_READY = "already_ready"
    ALREADY_RUNNING = "already_running"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPatch:
    """New values for fields of a job; None leaves one as it is. `run_at` that has passed makes a delayed job ready."""

    priority: int | None = None
    run_at: datetime | None = None
    tags: tuple[str, ...] | None = None
    max_attempts: int | None = None

    def before(self, view: JobView) -> dict[str, object]:
        """Give the values that the fields of this patch have before it."""
        return {name: shown(getattr(view, name)) for name in self.after()}

    def after(self) -> dict[str, object]:
        """Give the fields of this patch with their new values."""
        values = {name: getattr(self, name) for name in ("priority", "run_at", "tags", "max_attempts")}
        return {name: shown(value) for name, value in values.items() if value is not None}


def shown(value: object) -> object:
    """Give a value as plain JSON."""
    if isinstance(value, datetime):
        return value.isoformat()
    return list(value) if isinstance(value, tuple) else value


def version_of(view: JobView) -> str:
    """Give an opaque word that changes whenever the job's state, counters, times, error or edited fields do.

    What an error says is no part of it: it may lie encrypted, and does not change unless its attempt does.
    """
    claim, error = view.claim, view.error
    facts = (
        view.state.value,
        str(view.state_reason),  # a word, whether or not the store gives a member for it
        view.counters,
        view.max_attempts,
        view.priority,
        view.run_at,
        view.started_at,
        view.finished_at,
        view.last_outcome,
        None if error is None else (error.type, error.code),
        view.key_expires_at,
        view.tags,
        None if claim is None else (claim.worker_id, claim.claimed_at),
    )
    return hashlib.blake2b(repr(facts).encode("utf-8", "replace"), digest_size=8).hexdigest()
