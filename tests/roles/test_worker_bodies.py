"""Bodies that misbehave: whatever they raise or return ends their own attempt, bounded, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from app.domain.outcome import OutcomeKind
from app.domain.retry import RetryPolicy
from app.domain.state import State
from app.jobs.exits import Snooze
from app.jobs.handle import job
from tests.roles.harness import working

ONCE = RetryPolicy(max_attempts=1)
MESSAGE_MAX = 8 * 1024
TRACEBACK_MAX = 32 * 1024


class BareError(BaseException):
    pass


class MuteError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def raises(error: Callable[[], BaseException]) -> Callable[[], None]:
    def throw() -> None:
        raise error()

    return throw


def recurse() -> None:
    recurse()


CASES: dict[str, tuple[Callable[[], None], str]] = {
    "system-exit": (raises(lambda: SystemExit(1)), "SystemExit"),
    "keyboard-interrupt": (raises(KeyboardInterrupt), "KeyboardInterrupt"),
    "generator-exit": (raises(GeneratorExit), "GeneratorExit"),
    "cancelled-by-itself": (raises(asyncio.CancelledError), "CancelledError"),
    "bare-base-exception": (raises(BareError), "BareError"),
    "group": (raises(lambda: ExceptionGroup("two", [ValueError("a"), KeyError("b")])), "ExceptionGroup"),
    "base-group": (raises(lambda: BaseExceptionGroup("all", [SystemExit(2), BareError()])), "BaseExceptionGroup"),
    "mute": (raises(MuteError), "MuteError"),
    "recursion": (recurse, "RecursionError"),
    "huge": (raises(lambda: ValueError("x" * 50_000_000)), "ValueError"),
    "nul-and-surrogate": (raises(lambda: ValueError("a\0b\ud800c")), "ValueError"),
    "stop-iteration": (raises(StopIteration), ""),
}


@pytest.mark.parametrize("is_sync", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize("case", CASES)
async def test_whatever_a_body_raises_is_one_failed_attempt(case: str, is_sync: bool) -> None:
    throw, kind = CASES[case]
    release = asyncio.Event()

    async def as_async() -> None:
        throw()

    @job("neighbour.job")
    async def neighbour() -> str:
        await release.wait()
        return "fine"

    bad = job("bad.job", retry=ONCE)(throw if is_sync else as_async)
    async with working(bad, neighbour) as bench:
        beside = await bench.enqueue("neighbour.job")
        await bench.until("attempt.started", beside)
        job_id = await bench.enqueue("bad.job", max_attempts=1)
        await bench.until("attempt.dead", job_id)
        release.set()
        await bench.until("attempt.completed", beside)
        (attempt,) = await bench.ledger(job_id)
        assert attempt.outcome is OutcomeKind.DEAD_LETTERED
        assert attempt.error is not None
        assert attempt.error.type == kind or not kind
        assert len(attempt.error.message.encode()) <= MESSAGE_MAX
        assert attempt.error.traceback is not None
        assert len(attempt.error.traceback.encode()) <= TRACEBACK_MAX
        assert "\0" not in attempt.error.message


@pytest.mark.parametrize("is_awaited", [True, False], ids=["awaited", "left alone"])
@pytest.mark.parametrize("exit_kind", [SystemExit, KeyboardInterrupt])
async def test_an_exit_in_a_child_task_ends_at_most_its_own_attempt(
    exit_kind: type[BaseException], is_awaited: bool
) -> None:
    async def child() -> None:
        raise exit_kind

    @job("parent.job", retry=ONCE)
    async def parent() -> None:
        task = asyncio.ensure_future(child())
        if is_awaited:
            await task
        else:
            await asyncio.wait({task})
            assert task.exception() is not None

    async with working(parent) as bench:
        job_id = await bench.enqueue("parent.job", max_attempts=1)
        await bench.until("attempt.dead" if is_awaited else "attempt.completed", job_id)
        if is_awaited:
            error = (await bench.view(job_id)).error
            assert error is not None
            assert error.type == exit_kind.__name__


async def test_an_exit_in_a_task_group_of_a_body_is_a_failure_that_names_it() -> None:
    async def child() -> None:
        sys.exit("enough")

    @job("group.job", retry=ONCE)
    async def body() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child())

    async with working(body) as bench:
        job_id = await bench.enqueue("group.job", max_attempts=1)
        await bench.until("attempt.dead", job_id)
        error = (await bench.view(job_id)).error
        assert error is not None
        assert "SystemExit: enough" in error.message


async def test_a_child_task_with_a_context_of_its_own_is_contained_too() -> None:
    async def child() -> None:
        sys.exit(0)

    @job("context.job", retry=ONCE)
    async def body() -> None:
        await asyncio.get_running_loop().create_task(child(), context=contextvars.Context())

    async with working(body) as bench:
        job_id = await bench.enqueue("context.job", max_attempts=1)
        await bench.until("attempt.dead", job_id)
        error = (await bench.view(job_id)).error
        assert error is not None
        assert error.type == "SystemExit"


async def test_a_body_cancels_itself_and_its_children_but_no_task_of_the_worker() -> None:
    release = asyncio.Event()

    @job("neighbour.job")
    async def neighbour() -> str:
        await release.wait()
        return "fine"

    @job("cancels.all", retry=ONCE)
    async def body() -> None:
        child = asyncio.ensure_future(asyncio.Event().wait())
        own = [task for task in asyncio.all_tasks() if task.get_name().startswith("outlast.")]
        refused = [task for task in own if task is not asyncio.current_task() and not task.cancel()]
        assert len(refused) == len(own) - 1
        assert child.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        current = asyncio.current_task()
        assert current is not None
        assert current.cancel()
        await asyncio.Event().wait()

    async with working(neighbour, body) as bench:
        beside = await bench.enqueue("neighbour.job")
        await bench.until("attempt.started", beside)
        job_id = await bench.enqueue("cancels.all", max_attempts=1)
        await bench.until("attempt.dead", job_id)
        error = (await bench.view(job_id)).error
        assert error is not None
        assert error.type == "CancelledError"
        release.set()
        await bench.until("attempt.completed", beside)
        assert bench.probe.of("cancel.refused")
        after = await bench.enqueue("neighbour.job")
        await bench.until("attempt.completed", after)


async def test_a_child_task_cancelled_before_it_began_warns_of_nothing() -> None:
    async def child() -> None:
        raise AssertionError

    @job("early.job")
    async def body() -> str:
        task = asyncio.ensure_future(child())
        task.cancel()
        await asyncio.wait({task})
        return "cancelled" if task.cancelled() else "ran"

    async with working(body) as bench:
        job_id = await bench.enqueue("early.job")
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result == '"cancelled"'


def nap() -> None:
    raise Snooze(timedelta(hours=1))


async def test_a_snooze_that_an_except_exception_would_eat_gets_through() -> None:
    @job("nap.job")
    async def body(claims: int = 0) -> None:
        try:
            nap()
        except Exception:  # noqa: BLE001 - as authors write it
            raise AssertionError from None

    async with working(body) as bench:
        job_id = await bench.enqueue("nap.job")
        await bench.until("attempt.suspended", job_id)
        assert (await bench.view(job_id)).state is State.DELAYED


def circular() -> Any:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


RESULTS: dict[str, Callable[[], Any]] = {
    "no json form": lambda: asyncio.Event,
    "nan": lambda: float("nan"),
    "infinity": lambda: [float("inf")],
    "nul": lambda: "a\0b",
    "surrogate": lambda: "\ud800",
    "circular": circular,
    "2 MB": lambda: "x" * 2_000_000,
    "depth 2000": lambda: nested(2000),
    "lock": asyncio.Lock,
}


@pytest.mark.parametrize("kind", RESULTS)
async def test_a_result_that_cannot_be_stored_is_a_coded_failure_by_budget(kind: str) -> None:
    @job("bad.result", retry=RetryPolicy(max_attempts=2, backoff=timedelta(milliseconds=10), jitter="none"))
    async def bad() -> Any:
        return RESULTS[kind]()

    @job("good.result")
    async def good(n: int) -> int:
        return n

    async with working(bad, good) as bench:
        neighbours = [await bench.enqueue("good.result", {"n": n}) for n in range(5)]
        job_id = await bench.enqueue("bad.result", max_attempts=2)
        await bench.until("attempt.dead", job_id)
        ledger = await bench.ledger(job_id)
        assert [(one.outcome, one.error and one.error.code) for one in ledger] == [
            (OutcomeKind.RETRIED, "RESULT_INVALID"),
            (OutcomeKind.DEAD_LETTERED, "RESULT_INVALID"),
        ]
        for neighbour in neighbours:
            await bench.until("attempt.completed", neighbour)


async def test_a_body_that_returns_nothing_has_no_result() -> None:
    @job("none.job")
    async def body() -> None:
        return None

    async with working(body) as bench:
        job_id = await bench.enqueue("none.job")
        await bench.until("attempt.completed", job_id)
        assert (await bench.view(job_id)).result is None
