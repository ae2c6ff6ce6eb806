"""When a request is sent again, and when not: scripted answers, a clock that stands, and chance that is set."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx
import pytest

from app.client import AsyncClient, Client, Patience, ProblemError, UnreachableError
from app.client.call import Answer, Call
from app.client.calls.actions import cancel_job, delete_job, update_job
from app.client.calls.jobs import enqueue, get_job
from app.client.tries import KEY_HEADER, Terms, Tries
from app.domain.errors import RequestInvalid
from tests.client.conftest import PROMPT

CUT = httpx.ReadError("cut")
NEVER = httpx.ConnectError("refused")
DONE = httpx.Response(200, json={"version": "1", "code_version": "2"})
JOB = uuid4()


def problem(status: int, code: str, detail: str = "why", **headers: str) -> httpx.Response:
    document = {"code": code, "detail": detail, "fix": "mend it", "status": status, "retryable": status == 503}
    return httpx.Response(status, json=document, headers={name.replace("_", "-"): it for name, it in headers.items()})


class Script:
    """Answers in the order given, and keeps what was asked."""

    def __init__(self, *steps: httpx.Response | Exception) -> None:
        self._steps = iter(steps)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        step = next(self._steps)
        if isinstance(step, Exception):
            raise step
        return step

    @property
    def keys(self) -> list[str | None]:
        return [request.headers.get(KEY_HEADER) for request in self.requests]


def client_of(script: Script) -> Client:
    return Client("http://localhost", patience=PROMPT, transport=httpx.MockTransport(script))


def outcome_of(script: Script, call: Call[Any]) -> object:
    """Send one request, whose answer is read as whatever it is, and give the answer's status or the error."""
    with client_of(script) as client:
        try:
            return client.send(replace(call, read=status_of))
        except (ProblemError, UnreachableError) as exc:
            return exc


def status_of(answer: Answer) -> int:
    return answer.status


@pytest.mark.parametrize("failure", [CUT, NEVER, problem(503, "DRIVER_UNAVAILABLE"), problem(429, "RATE_LIMITED")])
def test_a_read_is_repeated(failure: httpx.Response | Exception) -> None:
    script = Script(failure, failure, DONE)
    assert outcome_of(script, get_job(JOB)) == 200
    assert script.keys == [None, None, None]


@pytest.mark.parametrize("failure", [CUT, NEVER, problem(503, "DRIVER_UNAVAILABLE"), problem(429, "QUEUE_FULL")])
@pytest.mark.parametrize(
    "call",
    [enqueue("a", {}), cancel_job(JOB), update_job(JOB, version="1", priority=1), delete_job(JOB)],
    ids=["enqueue", "cancel", "update", "delete"],
)
def test_an_action_is_repeated_under_one_key_of_its_own(call: Call[Any], failure: httpx.Response | Exception) -> None:
    script = Script(failure, failure, DONE)
    assert outcome_of(script, call) == 200
    keys = set(script.keys)
    assert len(keys) == 1
    assert None not in keys
    other = Script(DONE)
    outcome_of(other, call)
    assert other.keys[0] not in keys


def test_what_another_try_of_ours_still_does_is_asked_for_again() -> None:
    script = Script(CUT, problem(409, "IDEMPOTENCY_IN_FLIGHT", Retry_After="0"), DONE)
    assert outcome_of(script, enqueue("a", {})) == 200
    assert len(set(script.keys)) == 1


@pytest.mark.parametrize(
    ("call", "was_sent", "maybe_done"),
    [(get_job(JOB), True, False), (cancel_job(JOB), False, False), (cancel_job(JOB), True, True)],
)
def test_out_of_time_it_says_whether_it_may_be_done(call: Call[Any], *, was_sent: bool, maybe_done: bool) -> None:
    clock = Clock()
    tries = tries_of(call, clock=clock)
    assert tries.after_error(NEVER, was_sent=was_sent) == 0.1
    clock.now += 30
    with pytest.raises(UnreachableError) as lost:
        tries.after_error(NEVER, was_sent=False)
    assert lost.value.maybe_done is maybe_done


@pytest.mark.parametrize("url", ["localhost:8080", "", "ftp://localhost"])
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(RequestInvalid, match="address"):
        Client(url)


@pytest.mark.parametrize("status", [400, 401, 404, 409, 412, 422, 500, 501, 502])
def test_other_refusals_stand(status: int) -> None:
    script = Script(problem(status, "SOME_CODE"))
    refused = outcome_of(script, enqueue("a", {}))
    assert isinstance(refused, ProblemError)
    assert (refused.status, refused.code, len(script.requests)) == (status, "SOME_CODE", 1)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def tries_of(call: Call[Any], *, clock: Clock | None = None) -> Tries:
    roll: Iterator[float] = iter([1.0] * 100)
    terms = Terms(patience=Patience(), monotonic=clock or Clock(), roll=lambda: next(roll))
    return Tries(call, terms)


def answer_of(status: int, **headers: str) -> Answer:
    return Answer(status=status, headers={name.replace("_", "-"): it for name, it in headers.items()}, body=b"{}")


def test_pauses_grow_to_a_longest_and_are_at_least_what_the_service_says() -> None:
    tries = tries_of(get_job(JOB))
    pauses = [tries.after(answer_of(503)) for _ in range(8)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert tries_of(get_job(JOB)).after(answer_of(429, retry_after="7")) == 7.1
    assert tries_of(get_job(JOB)).after(answer_of(429, retry_after="Wed, 21 Oct 2026 07:28:00 GMT")) == 0.1


def test_the_deadline_counts_tries_and_pauses_together() -> None:
    clock = Clock()
    tries = tries_of(get_job(JOB), clock=clock)
    assert tries.timeout_seconds() == 10
    clock.now += 25
    assert tries.timeout_seconds() == 5
    assert tries.after(answer_of(503, retry_after="6")) is None
    assert tries.after(answer_of(503)) == 0.2
    clock.now += 5
    with pytest.raises(UnreachableError, match="GET"):
        tries.after_error(CUT, was_sent=True)


def test_an_answer_of_something_else_is_told_apart() -> None:
    refused = outcome_of(Script(httpx.Response(502, text="<html>bad gateway</html>")), get_job(JOB))
    assert isinstance(refused, ProblemError)
    assert (refused.code, refused.status) == ("HTTP_502", 502)
    assert "bad gateway" in refused.detail
    with client_of(Script(httpx.Response(200, text="<html>hello</html>"))) as client:
        with pytest.raises(ProblemError) as unread:
            client.get(JOB)
        assert unread.value.code == "HTTP_200"
    with client_of(Script(httpx.Response(200, json=[1]))) as client, pytest.raises(ProblemError):
        list(client.list())


def test_errors_cross_process_borders() -> None:
    error = ProblemError(409, {"code": "JOB_DUPLICATE", "detail": "d", "fix": "f", "existing_id": str(JOB)})
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made a line above
    assert (again.code, again.status, again.details, str(again)) == (error.code, 409, error.details, str(error))
    lost = pickle.loads(pickle.dumps(UnreachableError("cut", maybe_done=True)))  # noqa: S301 - same
    assert lost.maybe_done


async def test_a_wait_that_is_cancelled_ends_at_once() -> None:
    async def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async with AsyncClient("http://localhost", transport=httpx.MockTransport(away)) as client:
        task = asyncio.ensure_future(client.get(JOB))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
