"""Every version replays what earlier ones have recorded: same steps, same order, same values."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import __version__
from app.domain.state import State
from app.domain.step import StepKind
from app.jobs.registry import Registry
from app.replay.attempt import ReplayOptions
from app.replay.check import Check, Verdict
from app.replay.line import trace_of
from app.replay.trace import Trace
from tests.golden.jobs import HANDLES
from tests.golden.record import recorded

GOLDEN = Path(__file__).parent
FILES = sorted(GOLDEN.glob("*/*.ndjson"))


def read(file: Path) -> list[Trace]:
    """Give the traces of a file."""
    return [trace_of(line, number=number) for number, line in enumerate(file.read_bytes().splitlines(), 1)]


def replays(traces: list[Trace]) -> None:
    """Replay traces: all that is recorded is asked for, and who has ended gives the same result again."""
    check = Check(Registry(HANDLES), ReplayOptions(seconds=10, result_max_bytes=1024 * 1024))
    findings = [check.check(trace) for trace in traces]
    assert [finding for finding in findings if finding.verdict is not Verdict.FITS] == []
    # The step that fails there is not recorded, and asked for again in front of what was done instead.
    assert {f.trace.job.name for f in findings if f.recorded != f.matched} <= {"golden.fails"}
    ended = [finding for finding in findings if finding.trace.job.state is State.DONE and finding.recorded]
    assert ended
    for finding in ended:
        assert finding.result == finding.trace.job.result, finding.trace.job.name


@pytest.mark.parametrize("file", FILES, ids=[f"{file.parent.name}/{file.name}" for file in FILES])
def test_what_a_version_recorded_is_replayed_by_this_one(file: Path) -> None:
    replays(read(file))


def test_this_version_has_its_traces() -> None:
    assert (GOLDEN / __version__ / "runs.ndjson").is_file(), "write them: make golden"


def covers(traces: list[Trace]) -> None:
    """Hold traces to having one of everything that can be recorded."""
    assert {step.kind for trace in traces for step in trace.history.steps} == set(StepKind)
    kinds = {wait.kind for trace in traces for wait in trace.history.waits}
    assert kinds == {StepKind.SLEEP, StepKind.EVENT, StepKind.CALL}
    assert any(wait.has_failed for trace in traces for wait in trace.history.waits)
    states = {trace.job.state for trace in traces}
    assert states == {State.DONE, State.DEAD, State.SUSPENDED, State.DELAYED}
    assert {handle.name for handle in HANDLES} <= {trace.job.name for trace in traces}


def test_the_traces_of_this_version_have_one_of_everything() -> None:
    covers(read(GOLDEN / __version__ / "runs.ndjson"))


@pytest.mark.postgres
async def test_what_this_version_records_now_is_like_that(database_url: str) -> None:
    traces = await recorded(database_url, version=__version__)
    covers(list(traces))
    there = {_shape(trace) for trace in read(GOLDEN / __version__ / "runs.ndjson")}
    assert {_shape(trace) for trace in traces} == there


def _shape(trace: Trace) -> tuple[object, ...]:
    """Give what two recordings of one version have in common: everything but ids and times."""
    steps = sorted((step.place, step.name, step.kind, step.value, step.has_event) for step in trace.history.steps)
    waits = sorted((wait.place, wait.name, wait.kind, wait.event, wait.key) for wait in trace.history.waits)
    job = trace.job
    return (job.name, job.state, job.payload, job.result, job.meta, job.tags, job.key, tuple(steps), tuple(waits))
