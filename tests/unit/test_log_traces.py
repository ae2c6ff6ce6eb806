"""What the log shows of an exception: frames and kinds, groups included, and no text."""

from __future__ import annotations

from app.observability.logging import trace_of

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
