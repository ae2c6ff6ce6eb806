"""The text of a trace: everything of a run comes back, stored text byte for byte."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from app.domain.errors import RequestInvalid
from app.domain.job import Counters, RunId
from app.domain.state import State
from app.domain.step import StepKind
from app.replay.line import line_of, trace_of
from app.replay.trace import Trace
from tests.unit.replay_traces import CHILD_ID, NOW, step, trace, wait

FULL = trace(
    step("load", 0, '[1e0,-0.0,"\\u20ac"]', seq=7, claim_no=2),
    step("nothing", 1),
    step("null", 2, "null", branch="2.0", code_version=""),
    step("approval", 1, '{"by":"ann"}', branch="2.1", kind=StepKind.EVENT, has_event=True),
    step("child", 0, "3", branch="~load", kind=StepKind.CALL, child_id=CHILD_ID),
    wait("nap", 3, due_at=NOW + timedelta(hours=1)),
    wait("order", 4, StepKind.EVENT, event="order.approved", key="7"),
    wait(
        "call",
        5,
        StepKind.CALL,
        child_id=CHILD_ID,
        child_state=State.DEAD,
        is_child_gone=True,
        child_error_type="ValueError",
        child_error_message="no",
        child_error_code="C",
    ),
    payload='{"n":  1e0, "big": 1152921504606846977}',
    counters=Counters(1, 5, 2, 1),
    run_id=RunId(CHILD_ID),
    state_reason="sleep",
    key="k",
    parent_id=CHILD_ID,
    enqueued_by="me",
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    tags=("a", "b"),
    meta='{"a": 1}',
    result='"done"',
)


def test_what_is_written_is_what_is_read() -> None:
    line = line_of(FULL)
    assert line.count(b"\n") == 1
    assert trace_of(line, number=1) == FULL


def test_a_payload_of_several_lines_is_written_on_one() -> None:
    lines = '{\n  "text": "a\\nb",\r\n  "n": 1\n}'
    read = trace_of(line_of(trace(payload=lines)), number=1)
    assert read.job.payload is not None
    assert json.loads(read.job.payload) == json.loads(lines)


def test_nothing_recorded_is_not_a_recorded_null() -> None:
    read = trace_of(line_of(FULL), number=1)
    assert [item.value for item in read.history.steps[1:3]] == [None, "null"]


def test_what_a_later_release_says_beside_is_left_out() -> None:
    document = json.loads(line_of(FULL))
    document["later"] = {"x": 1}
    document["steps"][0]["later"] = document["waits"][0]["later"] = [1]
    read = trace_of(json.dumps(document).encode(), number=1)
    assert replace(read, job=FULL.job, history=read.history).history.waits == FULL.history.waits


def test_a_later_format_is_refused_by_its_number() -> None:
    later = line_of(FULL).replace(b'"trace":1', b'"trace":2')
    with pytest.raises(RequestInvalid, match="line 3 is a trace of format 2, and this release reads 1"):
        trace_of(later, number=3)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"nonsense", "line 3 is no trace"),
        (b"[]", "line 3 is no trace"),
        (b"\xff{}", "line 3 is no trace"),
        (b"{}", "Field required at trace"),
        (line_of(FULL)[:200], "line 3 is no trace"),
        (line_of(FULL).replace(b'"kind":"run"', b'"kind":"jump"'), "at steps.0.kind"),
        (line_of(FULL).replace(b'"payload"', b'"pay"'), "Field required at payload"),
    ],
)
def test_what_is_no_trace_is_refused_with_the_line(line: bytes, said: str) -> None:
    with pytest.raises(RequestInvalid, match=said):
        trace_of(line, number=3)


def test_a_trace_names_everything_that_has_to_be_asked_for() -> None:
    names = [record.name for record in Trace(job=FULL.job, history=FULL.history).records]
    assert names == ["load", "nothing", "null", "approval", "child", "nap", "order", "call"]
