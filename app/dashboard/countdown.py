"""The axis of a drain: from when a worker was told to leave until it is gone, with what happens to its runs and when.

Places are percent of the width; beyond the end there is room for its words. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ..domain.drain import reserve_seconds
from ..domain.snapshot import WorkerView
from .words import dur

# Of the width, so that the last mark has its words beside it.
_WIDTH_OF_WHOLE = 100 / 1.25
# The worker's clock gave one end and the store's the other.
_DECIMALS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """An instant of a drain: where it is, and how long after the beginning, in words."""

    x: float
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Countdown:
    """A drain with a deadline. `began` is the word for its beginning; `now` is never beyond `gone`."""

    began: str
    now: Mark
    cancel: Mark
    abandon: Mark
    gone: Mark


def countdown_of(worker: WorkerView, now: datetime) -> Countdown | None:
    """Lay out a drain; None where the worker has no deadline, or never said when it was told."""
    ends, began = worker.drain_deadline_at, worker.drain_asked_at
    if ends is None or began is None or ends <= began:
        return None
    whole = round((ends - began).total_seconds(), _DECIMALS)
    reserve = reserve_seconds(whole)
    over = min(max((now - began).total_seconds(), 0.0), whole)

    def mark(seconds: float) -> Mark:
        return Mark(
            x=round(_WIDTH_OF_WHOLE * seconds / (whole or 1.0), 2), after=dur(round(seconds, _DECIMALS) * 1_000)
        )

    return Countdown(
        began="told" if worker.drain_asked_by is None else "asked",
        now=mark(over),
        cancel=mark(whole - reserve),
        abandon=mark(whole - reserve / 2),
        gone=mark(whole),
    )
