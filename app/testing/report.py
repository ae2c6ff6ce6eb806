"""What a crash test found, in words that say where a job has to be mended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pprint import pformat

from ..domain.state import State
from ..steps.points import Moment

_SHOWN = 12
_INDENT = " " * 14


class Crash(StrEnum):
    """What goes wrong at a point of a run."""

    KILLED = "worker killed"
    LEASE_LOST = "lease lost"
    SIGTERM = "SIGTERM"
    TWICE = "delivered twice"


_EXPLAINED = {
    Crash.KILLED: "the process is gone at once; another worker takes the job over",
    Crash.LEASE_LOST: "the store has taken the job back; the body is told and goes on to its end",
    Crash.SIGTERM: "the worker drains; the body is told and goes on to its end",
    Crash.TWICE: "another worker runs the job to its end; then the first goes on, knowing of nothing",
}

_PHRASES = {
    Moment.BEFORE: "before step {step!r}: nothing of it had begun",
    Moment.INSIDE: "inside step {step!r}: its work was done, its record was not made",
    Moment.AFTER: "after step {step!r}: its record was made",
    Moment.END: "at the end of the attempt: the body had ended, its outcome was not stored",
}


@dataclass(frozen=True, slots=True)
class Spot:
    """One point of a run, the `nth` time it is passed, from 1."""

    moment: Moment
    step: str | None
    nth: int

    def __str__(self) -> str:
        phrase = _PHRASES[self.moment].format(step=self.step)
        if self.moment is Moment.END and self.step is not None:
            phrase += f" (after step {self.step!r} was asked for)"
        return phrase if self.nth == 1 else f"{phrase} (time {self.nth})"


@dataclass(frozen=True, slots=True)
class Seen:
    """How a run ended, and what `check` gave then."""

    state: State
    effects: object
    why: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """A crash after which effects differ from those of the undisturbed run."""

    spot: Spot
    crash: Crash
    expected: Seen
    actual: Seen

    def __str__(self) -> str:
        lines = [f"  {self.crash.value} {self.spot}"]
        if self.expected.state is not self.actual.state:
            why = f" ({self.actual.why})" if self.actual.why else ""
            lines.append(f"    state:    {self.actual.state.value}{why}, expected {self.expected.state.value}")
        if self.expected.effects != self.actual.effects:
            lines.append(f"    expected: {_shown(self.expected.effects)}")
            lines.append(f"    actual:   {_shown(self.actual.effects)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class CrashReport:
    """What was tried, and where it made a difference."""

    job: str
    expected: Seen
    tried: Sequence[tuple[Spot, Crash]]
    differences: Sequence[Difference]

    def __str__(self) -> str:
        if not self.differences:
            return f"{self.job}: the effects are the same at all {len(self.tried)} crash points"
        lines = [
            (
                f"{self.job}: the effects differ from those of an undisturbed run"
                f" at {len(self.differences)} of {len(self.tried)} crash points"
            ),
            "",
            *(str(one) for one in self.differences[:_SHOWN]),
        ]
        if len(self.differences) > _SHOWN:
            lines.append(f"  and {len(self.differences) - _SHOWN} more")
        crashes = dict.fromkeys(one.crash for one in self.differences)
        lines += ["", *(f"  {crash.value}: {_EXPLAINED[crash]}" for crash in crashes), "", *self._advice()]
        return "\n".join(lines)

    def _advice(self) -> list[str]:
        is_repeated = [one.spot.moment is Moment.INSIDE or one.crash is Crash.TWICE for one in self.differences]
        advice = []
        if any(is_repeated):
            advice.append(
                "A step can run more than once until its record is made: give what it calls an idempotency key or"
                " ctx.fencing_token, or write with ctx.step.transaction."
            )
        if not all(is_repeated):
            advice.append("What a body does outside of steps is done again by every attempt: move it into a step.")
        return advice


class CrashDifference(AssertionError):
    """Effects differ; `report` says where."""

    def __init__(self, report: CrashReport) -> None:
        super().__init__(str(report))
        self.report = report


def _shown(value: object) -> str:
    return pformat(value, width=100, compact=True).replace("\n", f"\n{_INDENT}")
