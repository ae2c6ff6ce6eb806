"""Explain: make ordered reasons of a job's situation.

Pure. Owns the order and nothing else: the job's own state, its queue, its limits, the workers there are, its turn.
Called by control.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .explain_fleet import of_fleet, of_queue, of_turn, serving
from .explain_limits import of_limits
from .explain_state import of_state
from .reason import Explanation, Reason, Situation
from .state import TERMINAL, State

Source = Callable[[Situation], Iterator[Reason]]

SOURCES: tuple[Source, ...] = (of_state, of_queue, of_limits, of_fleet, of_turn)


def explain(situation: Situation) -> Explanation:
    """Say why a job is not running, the strongest reason first. One that runs or has ended has that one reason."""
    job = situation.job
    is_over = job.state in TERMINAL or job.state is State.RUNNING
    sources = (of_state,) if is_over else SOURCES
    return Explanation(
        job_id=job.id,
        job=job,
        at=situation.at,
        is_runnable=situation.is_claimable,
        is_served=not is_over and bool(serving(situation)),
        reasons=tuple(reason for source in sources for reason in source(situation)),
    )
