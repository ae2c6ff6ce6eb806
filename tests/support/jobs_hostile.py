"""Jobs that raise what nobody expects and return what nobody can keep: on the loop, in a task, in a thread.

Each records its real executions like those of `jobs_faults`. Loaded by workers that tests start.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, NoReturn

from pydantic import BaseModel

from app.jobs import JobContext, RetryPolicy, job
from tests.support.jobs_faults import effects

MEGABYTE = 1024 * 1024
DEEP = 2_000


class SilentError(Exception):
    """Its text raises when asked for."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class BareExit(BaseException):
    """Derives from neither `Exception` nor anything asyncio knows."""


def _recurse(depth: int = 0) -> int:
    return _recurse(depth + 1) + 1


def _grouped() -> NoReturn:
    raise BaseExceptionGroup("several", [ValueError("one"), SystemExit(2), ExceptionGroup("in", [KeyError("k")])])


def _circular_cause() -> NoReturn:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


def throw(kind: str) -> None:
    """Raise one of `ERRORS`."""
    match kind:
        case "recursion":
            _recurse()
        case "group":
            _grouped()
        case "circular_cause":
            _circular_cause()
        case _:
            raise _ERRORS[kind]


_ERRORS: dict[str, BaseException] = {
    "system_exit": SystemExit(3),
    "system_exit_text": SystemExit("bye"),
    "keyboard_interrupt": KeyboardInterrupt(),
    "generator_exit": GeneratorExit(),
    "bare": BareExit("bare"),
    "cancelled": asyncio.CancelledError("by its own hand"),
    "stop_iteration": StopIteration("over"),
    "silent": SilentError(),
    "huge": ValueError("x" * 50 * MEGABYTE),
    "nul": ValueError("a\0b"),
    "surrogate": ValueError("a\ud800b"),
    "ansi": ValueError("\x1b[2J\r\nforged line"),
    "no_arguments": ValueError(),
}
ERRORS = (*_ERRORS, "recursion", "group", "circular_cause")

ONE_MORE = RetryPolicy(max_attempts=2, backoff=timedelta(milliseconds=20), factor=1.0, jitter="none")


@job("faults.throw", retry=ONE_MORE)
async def throw_on_loop(ctx: JobContext, kind: str, gate: str = "") -> None:
    """Raise in the body."""
    with effects(ctx) as ledger:
        while gate and not ledger.is_open(gate):
            await asyncio.sleep(0.005)
        throw(kind)


@job("faults.throw_in_child", retry=ONE_MORE)
async def throw_in_child(ctx: JobContext, kind: str, gate: str = "") -> None:
    """Raise in a task of the body's own, and in one that nobody awaits."""
    with effects(ctx) as ledger:
        while gate and not ledger.is_open(gate):
            await asyncio.sleep(0.005)

        async def child() -> None:
            await asyncio.sleep(0)
            throw(kind)

        awaited, forgotten = asyncio.create_task(child()), asyncio.create_task(child())
        forgotten.add_done_callback(lambda task: task.cancelled() or task.exception())
        await awaited


@job("faults.throw_sync", retry=ONE_MORE)
def throw_sync(ctx: JobContext, kind: str, gate: str = "") -> None:
    """Raise in a thread."""
    with effects(ctx) as ledger:
        if gate:
            ledger.pass_gate(gate)
        throw(kind)


# --- results nobody can keep ------------------------------------------------------------------------------------------


class Doubtful(BaseModel):
    """A model whose serialisation runs into its own cycle."""

    other: Any = None


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


def _deep() -> list[Any]:
    deep: list[Any] = []
    for _ in range(DEEP):
        deep = [deep]
    return deep


def _circular_model() -> Doubtful:
    model = Doubtful()
    model.other = model
    return model


_RESULTS: dict[str, Callable[[], object]] = {
    "nan": lambda: float("nan"),
    "infinity_inside": lambda: {"a": [1, float("-inf")]},
    "nul": lambda: "a\0b",
    "nul_in_key": lambda: {"a\0b": 1},
    "surrogate": lambda: "a\ud800b",
    "circular": _circle,
    "circular_model": _circular_model,
    "deep": _deep,
    "large": lambda: "x" * (100 * MEGABYTE),
    "just_too_large": lambda: "x" * (MEGABYTE - 1),
    "bytes": lambda: b"\xff\xfe",
    "endless_number": lambda: 10**5_000,
    "object": object,
    "class": lambda: ValueError,
    "future": Future[int],
    "lock": threading.Lock,
    "file": lambda: sys.stderr,
}
RESULTS = tuple(_RESULTS)


def make(kind: str) -> object:
    """Give one of `RESULTS`."""
    return _RESULTS[kind]()


@job("faults.give", retry=ONE_MORE)
async def give(ctx: JobContext, kind: str, gate: str = "") -> Any:
    """Return what cannot be kept."""
    with effects(ctx) as ledger:
        while gate and not ledger.is_open(gate):
            await asyncio.sleep(0.005)
        return make(kind)


@job("faults.give_sync", retry=ONE_MORE)
def give_sync(ctx: JobContext, kind: str, gate: str = "") -> Any:
    """Return what cannot be kept, from a thread."""
    with effects(ctx) as ledger:
        if gate:
            ledger.pass_gate(gate)
        return make(kind)


@job("faults.give_number", retry=ONE_MORE)
async def give_number(ctx: JobContext) -> int:
    """Return another type than announced."""
    with effects(ctx):
        wrong: Any = "seven"
        answer: int = wrong
        return answer
