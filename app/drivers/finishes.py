"""One look at the store for all who wait for jobs to finish, and one ear for all who follow them.

The loop behind a driver's `until_finished` and `heard`. Runs while somebody waits or hears and a little longer, on the
loop of those who do. It asks about all their jobs in one statement, when the store says that something finished and, as
a floor, by polling. Who waits holds no connection. Owned by the driver, whose close ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import Context
from typing import Protocol, TypeAlias

from ..domain.errors import DriverUnavailable, OutlastError
from ..domain.job import JobId
from .protocol import Wake

# Without wake-ups: how often the store is asked, as long as anybody waits.
POLL_SECONDS = 0.5
# With wake-ups polling only covers a lost one.
_FLOOR_SECONDS = 5.0
# Every job that finishes anywhere wakes every process that listens; this bounds what the statement costs the store.
_BREATH_SECONDS = 0.02
# How long the listening connection outlives the last who waited: those who wait one after the other share it.
LINGER_SECONDS = 30.0
_NEWS = frozenset({Wake.FINISHED, Wake.READY, Wake.DELAYED, Wake.REVOKED})
_LOOKED_FOR = frozenset({Wake.FINISHED, Wake.LISTENING, Wake.LOST})

Ear: TypeAlias = Callable[[Wake], None]


class _Store(Protocol):
    async def finished_among(self, job_ids: Sequence[JobId]) -> frozenset[JobId]: ...

    def listen(
        self, on_wake: Callable[[Wake], None], *, news: frozenset[Wake]
    ) -> AbstractAsyncContextManager[None]: ...


class Finishes:
    """Who waits in this process, loop by loop."""

    def __init__(
        self, store: _Store, *, poll_seconds: float = POLL_SECONDS, linger_seconds: float = LINGER_SECONDS
    ) -> None:
        self._store = store
        self._poll_seconds = poll_seconds
        self._linger_seconds = linger_seconds
        self._lookouts: dict[asyncio.AbstractEventLoop, _Lookout] = {}
        self._ears: dict[asyncio.AbstractEventLoop, list[Ear]] = {}
        self._is_closed = False

    def open(self) -> None:
        """Let others wait again."""
        self._is_closed = False

    async def until(self, job_id: JobId) -> None:
        """Return as soon as a job is terminal or gone.

        Raises:
            DriverUnavailable: this is closed.
        """
        await self._lookout().until(job_id)

    @contextmanager
    def heard(self, ear: Ear) -> Iterator[None]:
        """Call `ear` on the running loop for every wake-up about jobs while the context is open.

        Raises:
            DriverUnavailable: this is closed.
        """
        lookout, ears = self._lookout(), self._ears[asyncio.get_running_loop()]
        ears.append(ear)
        try:
            yield
        finally:
            ears.remove(ear)
            lookout.look()

    def _lookout(self) -> _Lookout:
        """Give the one that looks on the running loop."""
        if self._is_closed:
            raise _closed()
        loop = asyncio.get_running_loop()
        lookout = self._lookouts.get(loop)
        if lookout is None or lookout.has_ended:
            self._forget_closed_loops()
            ears = self._ears.setdefault(loop, [])
            lookout = self._lookouts[loop] = _Lookout(self._store, ears, self._poll_seconds, self._linger_seconds)
        return lookout

    async def close(self) -> None:
        """End every wait with `DRIVER_UNAVAILABLE`, and what was started for it."""
        self._is_closed = True
        loop = asyncio.get_running_loop()
        self._forget_closed_loops()
        for other, lookout in tuple(self._lookouts.items()):
            if other is not loop:
                other.call_soon_threadsafe(lookout.task.cancel)
        if (own := self._lookouts.pop(loop, None)) is not None:
            own.task.cancel()
            await asyncio.wait((own.task,))

    def _forget_closed_loops(self) -> None:
        for loop in [loop for loop in tuple(self._lookouts) if loop.is_closed()]:
            del self._lookouts[loop]
            self._ears.pop(loop, None)


class _Lookout:
    """Those who wait on one loop, and the task that looks for them."""

    def __init__(self, store: _Store, ears: list[Ear], poll_seconds: float, linger_seconds: float) -> None:
        self._store = store
        self._ears = ears
        self._poll_seconds = poll_seconds
        self._linger_seconds = linger_seconds
        self._waiting: dict[JobId, set[asyncio.Future[None]]] = {}
        self._look = asyncio.Event()
        self._is_listening = False
        self._is_away = False
        self.has_ended = False
        # In a context of its own: it outlives whoever waits first, and is no part of what that does.
        loop = asyncio.get_running_loop()
        self.task = Context().run(lambda: loop.create_task(self._run(), name="outlast.finishes"))

    async def until(self, job_id: JobId) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job_id, set()).add(future)
        self._look.set()  # it may have finished before it was registered
        try:
            await future
        finally:
            others = self._waiting.get(job_id, set())
            others.discard(future)
            if not others:
                self._waiting.pop(job_id, None)

    def look(self) -> None:
        """Look again at who waits, and listens."""
        self._look.set()

    async def _run(self) -> None:
        failure: Exception = _closed()
        try:
            async with self._store.listen(self._on_wake, news=_NEWS):
                while await self._is_wanted():
                    await self._next_look()
                    await self._ask()
        except Exception as error:  # noqa: BLE001 - whoever waits is told, and the next to wait starts anew
            failure = error
        finally:
            self.has_ended = True
            for futures in self._waiting.values():
                _tell(futures, failure)

    async def _is_wanted(self) -> bool:
        """Wait until somebody waits; False when nobody has, nor listens, for a while. Nobody comes after that."""
        while not self._waiting:
            self._look.clear()
            try:
                async with asyncio.timeout(None if self._ears else self._linger_seconds):
                    await self._look.wait()
            except TimeoutError:
                self.has_ended = not (self._waiting or self._ears)
                if self.has_ended:
                    return False
        return True

    async def _next_look(self) -> None:
        pause = _FLOOR_SECONDS if self._is_listening and not self._is_away else self._poll_seconds
        try:
            async with asyncio.timeout(pause):
                await self._look.wait()
        except TimeoutError:
            pass
        self._look.clear()

    async def _ask(self) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            finished = await self._store.finished_among(tuple(self._waiting))
            self._is_away = False
        except OutlastError:
            finished, self._is_away = frozenset(), True  # the next look asks again
        for job_id in finished:
            _tell(self._waiting.get(job_id, set()), None)
        # A statement about many jobs costs more, and then comes less often.
        await asyncio.sleep(max(_BREATH_SECONDS, clock() - began))

    def _on_wake(self, wake: Wake) -> None:
        if wake in (Wake.LISTENING, Wake.LOST):
            self._is_listening = wake is Wake.LISTENING
        if wake in _LOOKED_FOR:
            self._look.set()
        for ear in self._ears:
            ear(wake)


def _closed() -> DriverUnavailable:
    return DriverUnavailable("the driver is closed", fix="await results before you close it")


def _tell(futures: set[asyncio.Future[None]], failure: Exception | None) -> None:
    for future in futures:
        if future.done():
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(failure)
