"""What tells open pages to look again: names of what may have changed, and nothing else.

A page has one stream. Hints of the store are gathered for a quarter of a second, and every two seconds one is made up
for what rings no bell, such as steps: a look that finds nothing new costs an answer without a body. Streams are
counted, hold no connection to the store, and end when the process drains.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from starlette.responses import Response
from starlette.types import Send

from ..domain.errors import OutlastError, RateLimited, Unauthenticated
from .streamed import Streamed
from .visit import Visit

_BREATH_SECONDS = 0.25
_LOOK_SECONDS = 2.0
_NAP_SECONDS = 0.25
_MOST = 256
_MOST_EACH = 20
_TOPIC = re.compile(r"(?:jobs|job:[0-9a-f-]{36})")
_HEADERS = {"X-Accel-Buffering": "no", "Cache-Control": "no-store, no-transform", "Connection": "close"}
RETRY = b"retry: 2000\n\n"
_DRAINING = b"event: draining\ndata: {}\n\n"


class Streams:
    """Counts the streams of a process."""

    def __init__(self, *, most: int = _MOST, most_each: int = _MOST_EACH) -> None:
        self._open: Counter[str] = Counter()
        self._most = most
        self._most_each = most_each

    @property
    def count(self) -> int:
        """Give how many are open."""
        return self._open.total()

    @contextmanager
    def admit(self, visitor: str) -> Iterator[None]:
        """Count a stream while the context is open. Raises `RATE_LIMITED`."""
        if self.count >= self._most or self._open[visitor] >= self._most_each:
            raise RateLimited(
                f"{visitor} has {self._open[visitor]} pages open live, {self.count} are open in all",
                fix="close some; a page without a stream shows the same when it is reloaded",
                limit=self._most_each,
            )
        self._open[visitor] += 1
        try:
            yield
        finally:
            self._open[visitor] -= 1


def stream_page(streams: Streams) -> Callable[[Visit], Awaitable[Response]]:
    """Give the page of streams, whose number is bounded together."""

    async def page(visit: Visit) -> Response:
        topic = visit.asked("topics")
        name = b"job-changed" if topic.startswith("job:") and _TOPIC.fullmatch(topic) else b"jobs-changed"
        return _Stream(visit, streams, name)

    return page


class _Stream(Streamed):
    def __init__(self, visit: Visit, streams: Streams, name: bytes) -> None:
        self._opened = ExitStack()
        self._opened.enter_context(streams.admit(visit.seen.visitor.name))
        super().__init__(self._events(visit, name), media_type="text/event-stream", headers=_HEADERS)

    async def _events(self, visit: Visit, name: bytes) -> AsyncGenerator[bytes, None]:
        rung = asyncio.Event()
        with suppress(OutlastError):  # the store is away, or has no bell: the looks go on
            self._opened.enter_context(visit.services.overview.heard(rung.set))
        yield RETRY
        while not visit.services.is_draining():
            await _heard(rung, visit)
            if not await _may_stay(visit):
                return  # whoever comes back is asked to sign in
            yield b"event: %s\ndata: {}\n\n" % name
            await asyncio.sleep(_BREATH_SECONDS)
        yield _DRAINING

    async def stream_response(self, send: Send) -> None:
        """Send hints, and be counted no more at the end."""
        with self._opened:
            await super().stream_response(send)


async def _may_stay(visit: Visit) -> bool:
    """Say whether the visitor would be let in now. While the store is away everybody stays; there is nothing to see."""
    try:
        await visit.sessions.of(visit.request)
    except Unauthenticated:
        return False
    except OutlastError:
        return True
    return True


async def _heard(rung: asyncio.Event, visit: Visit) -> None:
    """Wait for the bell, for the next look, or for the process to leave, whichever is first."""
    waited = 0.0
    while waited < _LOOK_SECONDS and not visit.services.is_draining():
        try:
            async with asyncio.timeout(_NAP_SECONDS):
                await rung.wait()
        except TimeoutError:
            waited += _NAP_SECONDS
            continue
        rung.clear()
        return
