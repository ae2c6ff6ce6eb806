"""Says of each trace what the code at hand would make of the run: go on with it, or not.

A run that the code does not fit would be handed back to workers of the code that recorded it, or held. Called by the
command line and by the test that replays the traces of earlier versions.
"""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from traceback import walk_tb
from typing import Any

from ..domain.errors import PayloadInvalid
from ..jobs.handle import JobHandle
from ..jobs.jobtype import parse_payload
from ..jobs.registry import Registry
from ..steps.history import Record, said
from ..steps.recorder import Recorder
from .attempt import Replayed, ReplayOptions, replay
from .order import passed_by
from .trace import Trace


class Verdict(StrEnum):
    """What the code would make of a run; the values are the words of `outlast jobs check`."""

    FITS = "fits"
    HELD = "held"  # or handed back, while workers of the code that recorded it live
    REFUSED = "refused"  # its payload, by the model
    UNCHECKED = "unchecked"  # the replay ended before all that is recorded was asked for, and not at a step
    UNKNOWN = "unknown"  # the code has no such job type


FAILED = frozenset({Verdict.HELD, Verdict.REFUSED, Verdict.UNCHECKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found of one run.

    `asked` is the step that the code asked for last, `step` the recorded one that it does not match, `code_version`
    that one's. `matched` of the `recorded` steps and waits were asked for as they are recorded. `result` is what the
    body returned, when it came to its end.
    """

    trace: Trace
    verdict: Verdict
    message: str = ""
    step: str | None = None
    asked: str | None = None
    code_version: str | None = None
    matched: int = 0
    recorded: int = 0
    result: str | None = None


class Check:
    """Checks traces against the job types of a registry, and counts what it finds."""

    def __init__(self, registry: Registry, options: ReplayOptions) -> None:
        self._registry = registry
        self._options = options
        self.counts: Counter[Verdict] = Counter()
        self.unknown: Counter[str] = Counter()
        self.partly = 0  # runs that fit as far as the replay came, with more on record behind a step that is not

    def check(self, trace: Trace) -> Finding:
        """Check one run. A body without a record, and a plain `def`, is not called: its payload is all there is."""
        finding = self._found(trace)
        self.counts[finding.verdict] += 1
        if finding.verdict is Verdict.UNKNOWN:
            self.unknown[trace.job.name] += 1
        if finding.verdict is Verdict.FITS and finding.matched < finding.recorded:
            self.partly += 1
        return finding

    def _found(self, trace: Trace) -> Finding:
        handle = self._registry.get(trace.job.name)
        if handle is None:
            return Finding(trace=trace, verdict=Verdict.UNKNOWN, message="this code has no such job type")
        try:
            parse_payload(handle.name, handle.signature, trace.job.payload or "null")
        except PayloadInvalid as refused:
            return Finding(trace=trace, verdict=Verdict.REFUSED, message=refused.cause)
        except Exception as error:  # noqa: BLE001 - validators are the author's code
            message = f"the payload model raised {type(error).__name__}: {error}"
            return Finding(trace=trace, verdict=Verdict.UNCHECKED, message=message)
        if handle.is_sync or not trace.records:
            return Finding(trace=trace, verdict=Verdict.FITS)
        return _judged(handle, trace, replay(handle, trace, self._options))


def _judged(handle: JobHandle[Any, Any], trace: Trace, replayed: Replayed) -> Finding:
    recorder = replayed.recorder
    if recorder is None:
        return Finding(trace=trace, verdict=Verdict.UNCHECKED, message=_why(handle, replayed))
    recorded = len(trace.records)
    matched = sum(record.name in recorder.asked for record in trace.records)
    if (diverged := recorder.diverged) is not None:
        return Finding(
            trace=trace,
            verdict=Verdict.HELD,
            message=diverged.cause,
            step=str(diverged.details["step"]),
            asked=recorder.reached,
            code_version=str(diverged.details["code_version"]),
            matched=min(matched, recorded - 1),
            recorded=recorded,
        )
    if (record := passed_by(trace.records, recorder.asked)) is not None:
        return Finding(
            trace=trace,
            verdict=Verdict.HELD,
            message=_left_behind(record, recorder),
            step=record.name,
            asked=recorder.reached,
            code_version=record.code_version,
            matched=matched,
            recorded=recorded,
        )
    is_checked = matched == recorded or (not replayed.refusals.said and _has_stopped(trace, recorder))
    return Finding(
        trace=trace,
        verdict=Verdict.FITS if is_checked else Verdict.UNCHECKED,
        message="" if is_checked else _why(handle, replayed),
        asked=recorder.reached,
        matched=matched,
        recorded=recorded,
        result=replayed.result,
    )


def _left_behind(record: Record, recorder: Recorder) -> str:
    version = record.code_version or "without a version"
    return f"the code asks for {recorder.reached!r} without having asked for {said(record)}, recorded by code {version}"


def _has_stopped(trace: Trace, recorder: Recorder) -> bool:
    """Say whether the code has come to where a replay ends: a wait that is not over, or a step that is not recorded."""
    names = {record.name for record in trace.records}
    return recorder.main.is_suspended or any(name not in names for name in recorder.asked)


def _why(handle: JobHandle[Any, Any], replayed: Replayed) -> str:
    """Say why a replay came no further."""
    error = replayed.error
    where = "" if error is None else _place_in(handle, error)
    if replayed.refusals.said:
        return f"the body {replayed.refusals.said[0]} outside of its steps{where}"
    if replayed.is_over_time:
        return f"the body takes longer than a replay may{where}"
    return f"the body raised {type(error).__name__}: {error}{where}" if error is not None else "the body came to no end"


def _place_in(handle: JobHandle[Any, Any], error: BaseException) -> str:
    """Give the line of the file of the body where an error passed through."""
    code = getattr(inspect.unwrap(handle.body), "__code__", None)
    own = None if code is None else code.co_filename
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == own]
    return f", at {own}:{lines[-1]}" if lines else ""
