"""What the log shows of an exception: frames and kinds, groups included, and no text."""

from __future__ import annotations

import io
import json
import logging

import pytest

from app.observability.logging import LogFormat, OutlastHandler, open_log, trace_of

SECRET = "a secret"


def fail() -> None:
    raise ValueError(SECRET)


def raised() -> BaseException:
    try:
        fail()
    except ValueError as first:
        return ExceptionGroup(SECRET, [first, ExceptionGroup(SECRET, [KeyError(SECRET)])])
    raise AssertionError


def test_what_a_group_holds_is_shown_without_its_texts() -> None:
    trace = trace_of(raised())
    assert SECRET not in trace
    assert "in fail" in trace
    kinds = [line for line in trace.splitlines() if line in {"ExceptionGroup", "ValueError", "KeyError"}]
    assert kinds == ["ExceptionGroup", "ValueError", "ExceptionGroup", "KeyError"]


def test_a_group_that_holds_itself_many_times_over_stays_short() -> None:
    group: BaseException = ValueError()
    for _ in range(50):
        group = BaseExceptionGroup("", [group] * 20)
    assert len(trace_of(group)) < 10_000


@pytest.mark.parametrize("key", ["blocked_at", "stack", "exception"])
def test_a_long_stack_is_shown_to_its_end_line_by_line(key: str) -> None:
    """The innermost frame, which says where a process hangs or fails, is the last."""
    out, root = io.StringIO(), logging.getLogger()
    level = root.level
    log = open_log(log_format=LogFormat.JSON, level="info", stream=out)
    try:
        log.info("event", **{key: "".join(f'  File "{n:080}", line {n}\n' for n in range(60)) + "the end"})
    finally:
        root.handlers = [handler for handler in root.handlers if not isinstance(handler, OutlastHandler)]
        root.setLevel(level)
        logging.captureWarnings(capture=False)
    shown = json.loads(out.getvalue())[key]
    assert shown.endswith("\nthe end")
    assert len(shown.splitlines()) == 61
