"""The points of an attempt at which something outside may want to stand: before, inside and after each step, its end.

A test kit kills workers there. Production has nobody at any point, and a run then passes them without a look.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from ..domain.job import ClaimedJob
from ..domain.step import StepKind
from .signal import Signal


class Moment(StrEnum):
    """When, as seen from a step."""

    BEFORE = "before"  # asked for, and not recorded: nothing of it has begun
    INSIDE = "inside"  # its body has ended, its record is not made
    AFTER = "after"  # its record is durable, nothing that comes after it has begun
    END = "end"  # of the attempt: its body has ended, its outcome is not stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of one attempt. `session` is that of a transaction; `error` is what the body ended with."""

    job: ClaimedJob
    signal: Signal
    moment: Moment
    step: str | None
    kind: StepKind | None = None
    session: object | None = None
    error: BaseException | None = None


AtPoint: TypeAlias = Callable[[Point], Awaitable[None]]
