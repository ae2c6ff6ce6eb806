"""The runs that a drain has told to stop, and what became of each: for the log, the status and the report.

Told from the worker's loop, or from the heartbeat's thread while that loop is blocked; read from any thread. One a life
of a worker. It stores nothing: outcomes are the settler's, marking abandoned claims the heartbeat's.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from ..domain.drain import DrainedRun, DrainReport
from ..domain.job import WorkerId
from ..domain.outcome import Completed, Interrupted
from ..domain.verdict import Reason
from ..lifecycle.drain import DrainNotice
from ..lifecycle.status import HeldRun, Tally
from ..observability.telemetry import Telemetry
from .roster import Roster, Run


class Fate(StrEnum):
    """What became of a run that was told to stop. `other`: failed, suspended, cancelled, or its claim was lost."""

    HELD = "held"
    COMPLETED = "completed"
    INTERRUPTED = "interrupted"
    ABANDONED = "abandoned"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldRun:
    """A run, when it was told (monotonic), and what became of it so far."""

    run: Run
    at: float
    fate: Fate


class Told:
    """Tells runs, and remembers whom."""

    def __init__(self, *, roster: Roster, telemetry: Telemetry, monotonic: Callable[[], float]) -> None:
        self._roster = roster
        self._telemetry = telemetry
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._heard: list[DrainNotice] = []
        self._told: dict[int, tuple[Run, float]] = {}
        self._given_up: dict[int, Run] = {}
        self._has_given_up = False

    def tell(self, notice: DrainNotice, *, cancel_at: float | None, worker_id: int) -> None:
        """Tell every held run; whoever comes first of loop and thread says so in the log.

        Repeating it is right: runs may have begun meanwhile, and a later instant to be cancelled at changes nothing.
        """
        said = f"worker {worker_id} is draining ({notice.cause})"
        runs = [run for run in self._roster.runs() if not run.is_settled]
        now = self._monotonic()
        for run in runs:
            run.signal.fire(Reason.DRAIN, cancel_at=cancel_at, said=said)
        with self._lock:
            is_news = notice not in self._heard
            self._heard.append(notice)
            for run in runs:
                self._told.setdefault(run.job.token.fence, (run, now))
        if is_news:
            self._telemetry.worker_drain_signalled(
                worker_id, cause=notice.cause, held=len(runs), seconds=notice.seconds
            )

    def has_heard(self, notice: DrainNotice) -> bool:
        """Say whether the runs were told of this notice."""
        with self._lock:
            return notice in self._heard

    def give_up(self) -> bool:
        """Give up what has not ended, and name each body that runs on in the log; False when that is done already."""
        with self._lock:
            if self._has_given_up:
                return False
            self._has_given_up = True
        runs = [run for run in self._roster.runs() if run.is_body_running]
        self.leave(runs)
        for run in runs:
            self._telemetry.worker_drain_abandoned(run.job)
        return True

    def leave(self, runs: Sequence[Run]) -> None:
        """Count runs as abandoned, unless their outcome is stored all the same: work that is finished is finished."""
        with self._lock:
            self._given_up |= {run.job.token.fence: run for run in runs}

    def left(self) -> tuple[Run, ...]:
        """Give the runs that were given up and not stored."""
        with self._lock:
            return tuple(run for run in self._given_up.values() if run.stored is None)

    def report(self, worker_id: WorkerId) -> DrainReport | None:
        """Say what became of the runs; of what has not ended, that it was abandoned. None without a drain."""
        with self._lock:
            first = self._heard[0] if self._heard else None
        if first is None:
            return None
        return DrainReport(
            worker_id=worker_id,
            reason=first.cause,
            lasted=timedelta(seconds=max(self._monotonic() - first.started, 0.0)),
            runs=tuple(_reported(one) for one in self.runs()),
        )

    # --- being watched ------------------------------------------------------------------------------------------------

    def held(self) -> tuple[HeldRun, ...]:
        """Give every run in the worker's hands, told or not."""
        with self._lock:
            told = dict(self._told)
        return tuple(_held(run, told.get(run.job.token.fence)) for run in self._roster.runs())

    def tally(self) -> Tally:
        """Count what became of the runs that were told; those that never began went back and do not count."""
        fates = Counter(one.fate for one in self.runs())
        return Tally(
            completed=fates[Fate.COMPLETED],
            interrupted=fates[Fate.INTERRUPTED],
            abandoned=fates[Fate.ABANDONED],
            other=fates[Fate.OTHER],
        )

    def runs(self) -> tuple[ToldRun, ...]:
        """Give the runs that had begun when they were told, in the order they were told in."""
        with self._lock:
            told = tuple(self._told.values())
        return tuple(self._judged(told))

    def _judged(self, told: tuple[tuple[Run, float], ...]) -> Iterator[ToldRun]:
        for run, at in told:
            if run.has_begun:
                yield ToldRun(run=run, at=at, fate=self._fate(run))

    def _fate(self, run: Run) -> Fate:
        match run.stored:
            case Completed():
                return Fate.COMPLETED
            case Interrupted():
                return Fate.INTERRUPTED
            case None if run.job.token.fence in self._given_up:
                return Fate.ABANDONED
            case None if not run.is_settled:
                return Fate.HELD
            case _:
                return Fate.OTHER


def _reported(one: ToldRun) -> DrainedRun:
    fate = Fate.ABANDONED if one.fate is Fate.HELD else one.fate
    token = one.run.job.token
    return DrainedRun(
        job_id=token.job_id,
        claim_no=token.claim_no,
        name=one.run.job.name,
        fate=fate.value,
        has_ignored=fate in {Fate.INTERRUPTED, Fate.ABANDONED} and not one.run.signal.is_read,
    )


def _held(run: Run, told: tuple[Run, float] | None) -> HeldRun:
    return HeldRun(
        job_id=str(run.job.token.job_id),
        job_type=run.job.name,
        tenant=run.job.tenant,
        told_at=None if told is None else told[1],
        is_acknowledged=told is not None and (run.signal.is_read or (run.has_begun and not run.is_body_running)),
    )
