"""One watcher for all streams of a process: it re-reads the jobs that somebody follows, and tells each follower.

The one loop here looks at each watched job when the store says that something happened and, since steps, progress and
claims ring no bell, once a second. A stream holds no connection; however many follow a job, it is read once. It decides
nothing about what is shown: `changes` tells looks apart, the HTTP edge renders.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from ..domain.errors import OutlastError, RateLimited
from ..domain.job import JobId
from ..drivers.protocol import JobDriver, Wake
from .changes import Follower, Look, News, Position, look_at

_POLL_SECONDS = 1.0
# Between two looks, however often the bell rings.
_BREATH_SECONDS = 0.25
_MOST = 256
_MOST_EACH = 20


class JobStreams:
    """Lets requests follow jobs; `run` is its loop and must be running for anything to be found."""

    def __init__(
        self,
        driver: JobDriver,
        *,
        poll_seconds: float = _POLL_SECONDS,
        most: int = _MOST,
        most_each: int = _MOST_EACH,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._poll_seconds = poll_seconds
        self._most = most
        self._most_each = most_each
        self._monotonic = monotonic
        self._streams: dict[JobId, list[JobStream]] = {}
        self._looks: dict[JobId, Look] = {}
        self._look = asyncio.Event()
        self._someone_follows = asyncio.Event()
        self._is_closing = False
        self._looked_at = float("-inf")

    @property
    def count(self) -> int:
        """Give how many streams are open."""
        return sum(len(streams) for streams in self._streams.values())

    def open(self) -> None:
        """Let requests follow jobs, again after a `stop`; `run` follows."""
        self._is_closing = False
        if not self._streams:
            self._someone_follows.clear()

    def stop(self) -> None:
        """End every stream now, and new ones at once: the process drains."""
        self._is_closing = True
        self._someone_follows.set()
        self._look.set()
        for stream in self._all():
            stream.stop()

    def on_wake(self, wake: Wake) -> None:  # noqa: ARG002 - whatever it was, a look shows it
        """Look soon: something happened."""
        self._look.set()

    @contextmanager
    def follow(self, job_id: JobId, *, caller: str, position: Position | None = None) -> Iterator[JobStream]:
        """Follow a job while the context is open, from a position on that the caller has come to before.

        While the process drains a stream is over at once: its reader comes back, until another process answers.

        Raises:
            RateLimited: too many streams are open here, or of this caller.
        """
        self._admit(caller)
        stream = JobStream(caller, position)
        if self._is_closing:
            stream.stop()
        self._streams.setdefault(job_id, []).append(stream)
        self._someone_follows.set()
        self._look.set()
        try:
            yield stream
        finally:
            self._leave(job_id, stream)

    async def run(self) -> None:
        """Serve the streams until `stop`, woken over the one connection that listens for all who wait."""
        with ExitStack() as hearing:
            with suppress(OutlastError):  # closed, or not open yet: the looks once a second go on
                hearing.enter_context(self._driver.heard(self.on_wake))
            while not self._is_closing:
                await self._someone_follows.wait()
                await self._next_look()
                for job_id in tuple(self._streams):
                    if not self._is_closing:
                        await self._read(job_id)

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def _next_look(self) -> None:
        try:
            async with asyncio.timeout(self._poll_seconds):
                await self._look.wait()
        except TimeoutError:
            pass
        rest = self._looked_at + _BREATH_SECONDS - self._monotonic()
        if rest > 0 and not self._is_closing:
            await asyncio.sleep(rest)
        self._look.clear()
        self._looked_at = self._monotonic()

    async def _read(self, job_id: JobId) -> None:
        streams = self._streams.get(job_id, ())
        if not streams:
            return
        after, before = min(stream.after for stream in streams), self._looks.get(job_id)
        try:
            look = await look_at(self._driver, job_id, after=after, since=before, at=self._monotonic())
        except OutlastError:
            # The store is away. Nobody is told anything; the loop asks again at its next look.
            return
        self._looks[job_id] = look
        for stream in tuple(self._streams.get(job_id, ())):
            # Who joined while it was read may need more than was read.
            if stream.after >= after:
                stream.show(look)
        if job_id not in self._streams:
            self._looks.pop(job_id, None)

    # --- who follows --------------------------------------------------------------------------------------------------

    def _admit(self, caller: str) -> None:
        if self.count >= self._most:
            raise RateLimited(
                f"{self._most} streams are open in this process",
                fix="close one, or read GET /v1/jobs/{id} from time to time",
                limit=self._most,
            )
        if sum(stream.caller == caller for stream in self._all()) >= self._most_each:
            raise RateLimited(
                f"{caller} has {self._most_each} streams open in this process",
                fix="close one, or read GET /v1/jobs/{id} from time to time",
                limit=self._most_each,
            )

    def _leave(self, job_id: JobId, stream: JobStream) -> None:
        rest = [other for other in self._streams.get(job_id, ()) if other is not stream]
        if rest:
            self._streams[job_id] = rest
            return
        self._streams.pop(job_id, None)
        self._looks.pop(job_id, None)
        if not self._streams and not self._is_closing:
            self._someone_follows.clear()

    def _all(self) -> Iterator[JobStream]:
        for streams in tuple(self._streams.values()):
            yield from streams


class JobStream:
    """One request's way along a job; read by one task."""

    def __init__(self, caller: str, position: Position | None) -> None:
        self.caller = caller
        self._follower = Follower(position)
        self._newest: Look | None = None
        self._is_stopped = False
        self._stir = asyncio.Event()

    @property
    def after(self) -> int:
        """Give the `seq` after which a look has to read for this stream."""
        return self._follower.after

    @property
    def is_stopped(self) -> bool:
        """Say whether the process drains."""
        return self._is_stopped

    def show(self, look: Look) -> None:
        """Give it the newest look; one that it has not read yet is left out, since the newer one shows as much."""
        self._newest = look
        self._stir.set()

    def stop(self) -> None:
        """End it."""
        self._is_stopped = True
        self._stir.set()

    async def news(self, idle_seconds: float) -> AsyncIterator[tuple[News, ...]]:
        """Give news as they come, nothing after each `idle_seconds` without any, until the job or the stream ends."""
        while not self._is_stopped and not self._follower.has_ended:
            try:
                async with asyncio.timeout(idle_seconds):
                    found = await self._next()
            except TimeoutError:
                yield ()
                continue
            if found:
                yield tuple(found)

    async def _next(self) -> list[News]:
        """Wait for a look that shows something, or for the end."""
        while True:
            await self._stir.wait()
            self._stir.clear()
            if self._is_stopped:
                return []
            look, self._newest = self._newest, None
            found = [] if look is None else self._follower.news(look)
            if found:
                return found
