"""How long a caller is kept: every request has its answer within one bound, whatever the store does.

A network that swallows everything answers neither yes nor no, and the time limits of connections, statements and
repetitions add up to minutes; so do the waits for a connection of a pool that is in use, of which a request may need
several: for its key, its job type, what it asks. All of them come out of one budget that begins with the request. Only
what a body takes to arrive, which has a bound of its own, and a wait that was asked for come on top. Used by the edge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers

from ..domain.errors import DriverUnavailable
from .body import READ_SECONDS
from .prefer import read_preferences

# What a connection of the pool is waited for at most; a client or a load balancer in front of this waits longer.
ANSWER_SECONDS = 10.0


class Patience:
    """The budget of one request, in force while the context is open and no answer has begun."""

    def __init__(self, headers: Headers) -> None:
        self._seconds = ANSWER_SECONDS + (read_preferences(headers.getlist("prefer")).wait_seconds or 0)
        self._bound = asyncio.timeout(self._seconds)
        self._reading_seconds = READ_SECONDS
        self._is_in_force = False

    async def __aenter__(self) -> None:
        """Begin."""
        await self._bound.__aenter__()
        self._is_in_force = True

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """End.

        Raises:
            DriverUnavailable: it took too long; what was under way was cancelled, and whether it took place is unknown.
        """
        self._is_in_force = False
        try:
            await self._bound.__aexit__(kind, error, None)
        except TimeoutError as late:
            raise DriverUnavailable(
                f"there was no answer within {self._seconds:g} s",
                fix="check that PostgreSQL answers and has connections to spare, then repeat the call",
            ) from late

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Spend nothing while a part of the body is waited for, as long as a body may take all in all."""
        clock = asyncio.get_running_loop().time
        began, until = clock(), self._bound.when()
        if until is None:
            yield
            return
        self._let(until + self._reading_seconds)
        try:
            yield
        finally:
            spent = min(clock() - began, self._reading_seconds)
            self._reading_seconds -= spent
            self._let(until + spent)

    def is_answered(self) -> None:
        """Bound no more: the answer has begun."""
        self._let(None)
        self._is_in_force = False

    def _let(self, when: float | None) -> None:
        if self._is_in_force and not self._bound.expired():
            self._bound.reschedule(when)
