"""How long a caller is kept: every request has its answer within a bound, whatever the store does.

A network that swallows everything answers neither yes nor no, and the time limits of connections, statements and
repetitions add up to minutes. Reading a body has a bound of its own, and a wait that was asked for comes on top. Used
by the edge.
"""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers

from ..domain.errors import DriverUnavailable
from .body import READ_SECONDS
from .prefer import read_preferences

# What one statement may take; a client or a load balancer in front of this waits longer.
ANSWER_SECONDS = 15.0


class Patience:
    """The bound of one request, in force while the context is open and no answer has begun."""

    def __init__(self, headers: Headers, *, has_body: bool) -> None:
        self._seconds = ANSWER_SECONDS + (read_preferences(headers.getlist("prefer")).wait_seconds or 0)
        self._bound = asyncio.timeout(self._seconds + (READ_SECONDS if has_body else 0))
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
                fix="check that PostgreSQL answers, then repeat the call",
            ) from late

    def is_read(self) -> None:
        """Count from now: the body has arrived."""
        self._let(asyncio.get_running_loop().time() + self._seconds)

    def is_answered(self) -> None:
        """Bound no more: the answer has begun."""
        self._let(None)

    def _let(self, when: float | None) -> None:
        if self._is_in_force and not self._bound.expired():
            self._bound.reschedule(when)
