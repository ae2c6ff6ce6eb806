"""Leaves the body of an `async with` out: what a recorded transaction has committed must not be done again.

Python has no statement for it. The interpreter's tracing can raise in the frame of the caller, at the first instruction
that its `async with` covers; for those few instructions, and in that frame, tracing is in force, and whatever traced
before does so again afterwards. Used by transactions.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

_YIELDS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_UNITS_BACK = 10  # code units between awaiting and what is awaited


class Skipped(BaseException):
    """Raised in the caller's frame in place of the body; the block's own exit takes it back."""


class Skip:
    """One body to leave out: armed when the block is entered, over when it is left."""

    def __init__(self) -> None:
        self._restore: Callable[[], None] | None = None

    def arm(self, frame: FrameType) -> bool:
        """Have the body of the `async with` that is being entered in a frame left out; False where it cannot be.

        A generator cannot: whoever drives it waits for it to yield. Nor can a block that is entered by a
        call, like that of an exit stack.
        """
        if frame.f_code.co_flags & _YIELDS or not _is_entering(frame):
            return False
        entered_under = _handler(frame.f_code, frame.f_lasti)
        before = (sys.gettrace(), frame.f_trace, frame.f_trace_opcodes)

        def restore() -> None:
            sys.settrace(before[0])
            frame.f_trace, frame.f_trace_opcodes = before[1], before[2]

        def trace(where: FrameType, event: str, _arg: object) -> Any:  # noqa: ANN401 - what the interpreter asks for
            if event == "return":
                self.disarm()
            elif event == "opcode" and _handler(where.f_code, where.f_lasti) not in (None, entered_under):
                raise Skipped
            return trace

        self._restore = restore
        frame.f_trace, frame.f_trace_opcodes = trace, True
        sys.settrace(_nowhere_else)
        return True

    def disarm(self) -> None:
        """Give tracing back to whoever had it."""
        if self._restore is not None:
            restore, self._restore = self._restore, None
            restore()


def _nowhere_else(_frame: FrameType, _event: str, _arg: object) -> None:
    """Trace no other frame."""


def _is_entering(frame: FrameType) -> bool:
    """Say whether what a frame awaits is the entry of an `async with`: the compiler marks what it awaits for that."""
    code, at = frame.f_code.co_code, frame.f_lasti
    for unit in range(at, max(at - 2 * _UNITS_BACK, -1), -2):
        if dis.opname[code[unit]] == "GET_AWAITABLE":
            return code[unit + 1] == 1
    return False


def _handler(code: CodeType, at: int) -> int | None:
    """Give where an exception at an instruction would go, None for out of the frame."""
    found = None
    for start, end, target in _handlers(code.co_exceptiontable):
        if start <= at < end:
            found = target
    return found


def _handlers(table: bytes) -> Iterator[tuple[int, int, int]]:
    """Read an exception table: start, length, target and depth, each of six bits a byte, in units of two bytes."""
    numbers = _numbers(table)
    for start in numbers:
        length, target, _depth = next(numbers), next(numbers), next(numbers)
        yield start * 2, (start + length) * 2, target * 2


def _numbers(table: bytes) -> Iterator[int]:
    value = 0
    for byte in table:
        value = (value << 6) | (byte & 63)
        if not byte & 64:
            yield value
            value = 0
