"""Where in a run a piece of code is: its branch, the task that runs it, and how many steps it has asked for.

A branch is one order of steps: the body's own, or one of a `gather`. A task that a body starts by itself has an order
of its own, named after the first step it asks for: nothing else about it is the same in every attempt.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, Token
from typing import Any, NamedTuple

from ..domain.step import MAIN_BRANCH, Place


class Branch:
    """One order of steps. `is_suspended` once a step of it has to wait."""

    __slots__ = ("is_suspended", "number", "path", "task")

    def __init__(self, path: str, task: asyncio.Task[Any] | None) -> None:
        self.path = path
        self.task = task
        self.number = 0
        self.is_suspended = False

    def next_place(self) -> Place:
        """Give the place of the next thing that is asked for in this order."""
        place = Place(self.path, self.number)
        self.number += 1
        return place

    def inner(self, part: str) -> str:
        """Give the path of a branch inside this one."""
        return part if self.path == MAIN_BRANCH else f"{self.path}.{part}"


class Where(NamedTuple):
    """Where the current code is, and in whose attempt. `inside` names the step whose body it is part of."""

    recorder: object
    branch: Branch
    inside: str | None = None


WHERE: ContextVar[Where | None] = ContextVar("outlast.step", default=None)


class Inside:
    """A block of which it is known where it is. A generator's context would cost more than the rest of a small step."""

    __slots__ = ("_token", "_where")

    def __init__(self, where: Where) -> None:
        self._where = where
        self._token: Token[Where | None] | None = None

    def __enter__(self) -> None:
        self._token = WHERE.set(self._where)

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            WHERE.reset(self._token)


def own_order_of(name: str) -> str:
    """Give the part of a path for a task that a body started by itself, from the first step it asks for."""
    return "~" + name.replace("%", "%25").replace(".", "%2E")
