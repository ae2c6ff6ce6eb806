"""Results as text, and what a body sees of its attempt."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, Field

from app.domain.errors import RequestInvalid, ResultInvalid
from app.jobs import JobHandle, job
from app.jobs.context import context_of
from app.jobs.invoke import encode_result
from tests.unit.jobs_fakes import JOB_ID, FakeSignal, claimed, context


class Sent(BaseModel):
    number: int = Field(serialization_alias="wireNumber")
    detail: Any = None


@dataclass
class Plain:
    at: datetime


def _returning(annotation: object) -> JobHandle[Any, Any]:
    def body() -> None: ...

    body.__annotations__ = {"return": annotation}
    return job("a.job")(body)


LOOP: list[object] = []
LOOP.append(LOOP)
DEEP: object = 1
for _ in range(65):
    DEEP = [DEEP]
ENDLESS: object = 1
for _ in range(100_000):
    ENDLESS = [ENDLESS]


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (None, None, None),
        (Any, None, None),
        (int | None, None, None),
        (int, 10**400, "1" + "0" * 400),
        (float, -0.0, "-0.0"),
        (str, "é\n", '"é\\n"'),
        (Sent, Sent(number=3, detail=[None]), '{"wireNumber":3,"detail":[null]}'),
        (Plain, Plain(at=datetime(2026, 1, 1, tzinfo=UTC)), '{"at":"2026-01-01T00:00:00Z"}'),
        (dict[str, int], {"a": 1}, '{"a":1}'),
        (Any, {"a": (1, 2)}, '{"a":[1,2]}'),
        (Any, False, "false"),
        (list[int], [0] * 200_000, "[" + ",".join(["0"] * 200_000) + "]"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_result_is_stored_by_its_annotation(annotation: object, value: object, text: str | None) -> None:
    assert encode_result(_returning(annotation), value) == text


def test_a_body_without_a_return_annotation_gives_plain_json() -> None:
    def body():  # type: ignore[no-untyped-def] # noqa: ANN202 # what the test shows
        return None

    assert encode_result(job("a.job")(body), {"a": [1]}) == '{"a":[1]}'


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (None, 3),
        (int, "secret"),
        (Sent, {"number": 3}),
        (float, float("nan")),
        (Any, float("nan")),
        (Any, [1, {"a": float("-inf")}]),
        (Sent, Sent(number=1, detail=float("inf"))),
        (Any, LOOP),
        (Any, DEEP),
        (Any, ENDLESS),
        (Any, [iter([1])]),
        (Any, {1: 2, "1": 3}),
        (dict[str, Any], {"a": {True: 1, "True": 2}}),
        (Any, object()),
        (Any, lambda: None),
        (Any, b"\xff"),
        (Any, 10**4300),
        (str, "a\0b"),
        (str, "\ud800"),
        (Any, {"\udc00": 1}),
        (str, "x" * 2**20),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_result_that_cannot_be_stored_is_refused_without_its_value(annotation: object, value: object) -> None:
    with pytest.raises(ResultInvalid) as caught:
        encode_result(_returning(annotation), value)
    assert "secret" not in str(caught.value)
    str(caught.value).encode()


def test_the_size_of_a_result_is_counted_in_bytes() -> None:
    handle = _returning(str)
    assert encode_result(handle, "é", max_bytes=4) == '"é"'
    with pytest.raises(ResultInvalid, match="too large"):
        encode_result(handle, "éx", max_bytes=4)


def test_an_error_in_a_serialiser_of_the_authors_own_is_a_result_that_cannot_be_stored() -> None:
    class Odd(BaseModel):
        number: int = 1

        @property
        def oddity(self) -> int:
            return 1

    assert json.loads(encode_result(_returning(Odd), Odd()) or "") == {"number": 1}


def test_a_context_shows_the_claimed_job() -> None:
    signal = FakeSignal()
    ctx = context_of(claimed(attempt=2, claim_no=5, meta='{"a": 1}'), signal=signal)
    assert (ctx.id, ctx.attempt, ctx.claim_no, ctx.crashes, ctx.interrupts) == (JOB_ID, 2, 5, 1, 2)
    assert (ctx.tenant, ctx.tags, dict(ctx.meta), ctx.fencing_token) == ("acme", ("a", "b"), {"a": 1}, 5)
    assert ctx.signal is signal
    with pytest.raises(AttributeError):
        ctx.attempt = 3  # type: ignore[misc] # what the test shows


def test_what_a_context_without_a_worker_cannot_do_is_refused_with_a_way_round() -> None:
    ctx = context()
    for ask in (lambda: ctx.step, lambda: ctx.progress(0.4, "almost"), lambda: ctx.log("a line")):
        with pytest.raises(RequestInvalid, match="have a worker run the job"):
            ask()
