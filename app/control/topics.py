"""That something has changed, by topic: for pages that re-read what they show, and for nobody else.

A stream is told names, never what changed: whoever reads decides what they may see when they look. Made of the wake-ups
of the store, gathered for a moment; where those cannot be heard, every topic is named now and then. Holds no connection
of its own, however many follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum

from ..domain.errors import OutlastError, RateLimited
from ..drivers.protocol import JobDriver, Wake

_MOST = 256
_MOST_EACH = 20
# Between two names of one topic, however much happens.
_BREATH_SECONDS = 0.25
# What rings no bell (workers, progress, pauses) and what was not heard is named this often.
_HINT_SECONDS = 5.0


class Topic(StrEnum):
    """What can be followed."""

    JOBS = "jobs"
    QUEUES = "queues"
    WORKERS = "workers"
    OUTBOX = "outbox"


_TOPICS: dict[Wake, frozenset[Topic]] = {
    Wake.READY: frozenset({Topic.JOBS, Topic.QUEUES}),
    Wake.DELAYED: frozenset({Topic.JOBS, Topic.QUEUES}),
    Wake.REVOKED: frozenset({Topic.JOBS, Topic.QUEUES}),
    Wake.FINISHED: frozenset({Topic.JOBS, Topic.QUEUES}),
    Wake.STAGED: frozenset({Topic.OUTBOX}),
    Wake.LOST: frozenset(Topic),
    Wake.LISTENING: frozenset(Topic),
}


class TopicStreams:
    """Lets requests follow topics."""

    def __init__(
        self, driver: JobDriver, *, most: int = _MOST, most_each: int = _MOST_EACH, hint_seconds: float = _HINT_SECONDS
    ) -> None:
        self._driver = driver
        self._most = most
        self._most_each = most_each
        self._hint_seconds = hint_seconds
        self._streams: list[TopicStream] = []
        self._is_closing = False

    @property
    def count(self) -> int:
        """Give how many streams are open."""
        return len(self._streams)

    def open(self) -> None:
        """Let requests follow topics, again after a `stop`."""
        self._is_closing = False

    def stop(self) -> None:
        """End every stream now, and new ones at once: the process drains."""
        self._is_closing = True
        for stream in self._streams:
            stream.stop()

    @contextmanager
    def follow(self, topics: frozenset[Topic], *, caller: str) -> Iterator[TopicStream]:
        """Follow topics while the context is open.

        Raises:
            RateLimited: too many streams are open here, or of this caller.
        """
        self._admit(caller)
        stream = TopicStream(topics, caller, hint_seconds=self._hint_seconds)
        if self._is_closing:
            stream.stop()
        self._streams.append(stream)
        try:
            with ExitStack() as hearing:
                with suppress(OutlastError):  # closed, or not open yet: the hints go on
                    hearing.enter_context(self._driver.heard(stream.on_wake))
                yield stream
        finally:
            self._streams.remove(stream)

    def _admit(self, caller: str) -> None:
        own = sum(stream.caller == caller for stream in self._streams)
        for count, most, whose in (
            (self.count, self._most, "this process has"),
            (own, self._most_each, f"{caller} has"),
        ):
            if count >= most:
                raise RateLimited(
                    f"{whose} {most} streams of topics open",
                    fix="close one: one stream carries every topic",
                    limit=most,
                )


class TopicStream:
    """One reader: the topics named since it last took them."""

    def __init__(self, topics: frozenset[Topic], caller: str, *, hint_seconds: float) -> None:
        self.caller = caller
        self.is_stopped = False
        self._topics = topics
        self._hint_seconds = hint_seconds
        self._named: set[Topic] = set(topics)  # whoever comes looks once
        self._news = asyncio.Event()
        self._news.set()

    def on_wake(self, wake: Wake) -> None:
        """Name the topics of a wake-up."""
        named = _TOPICS[wake] & self._topics
        if named:
            self._named |= named
            self._news.set()

    def stop(self) -> None:
        """End the stream: the process drains."""
        self.is_stopped = True
        self._news.set()

    async def named(self) -> AsyncIterator[list[Topic]]:
        """Give topics as they are named, in the order of their names, until the process drains."""
        while not self.is_stopped:
            try:
                async with asyncio.timeout(self._hint_seconds):
                    await self._news.wait()
            except TimeoutError:
                self._named |= self._topics
            self._news.clear()
            named, self._named = sorted(self._named), set()
            if named and not self.is_stopped:
                yield named
                await self._breathe()

    async def _breathe(self) -> None:
        """Let what happens at once be named once; a drain is not kept waiting longer than that."""
        await asyncio.sleep(_BREATH_SECONDS)
