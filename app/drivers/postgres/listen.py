"""Wake-ups in: LISTEN on a connection of its own, proved alive by hearing its own ping, re-established when lost.

Owns the listening task and its backoff. A wake-up is a hint: whoever listens polls as well, and sooner while this is
lost. Behind a pooler a LISTEN stays at a server connection that others use next, so none is sent there unless
`listen_url` asks for it; the first ping to such an address comes from another connection, which proves both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from secrets import SystemRandom, token_hex
from typing import Any

from ..protocol import NEWS, Wake
from .connect import connect
from .database import Database
from .pooler import is_pooled
from .ringer import channel_of
from .sqlstate import translate

# A black hole is found within interval + answer.
PING_INTERVAL = timedelta(seconds=15)
PING_ANSWER = timedelta(seconds=5)
MAX_BACKOFF = timedelta(seconds=10)
_FIRST_BACKOFF = timedelta(milliseconds=100)
# How soon to look again whether a pooler still stands in the way.
POOLED_PAUSE = timedelta(minutes=5)

_PING = "select pg_notify($1, '')"

OnWake = Callable[[Wake], None]


@asynccontextmanager
async def listen(
    db: Database,
    on_wake: OnWake,
    *,
    news: frozenset[Wake] = NEWS,
    listen_url: str | None = None,
    ping_interval: timedelta = PING_INTERVAL,
    ping_answer: timedelta = PING_ANSWER,
) -> AsyncIterator[None]:
    """Call `on_wake` on the running loop for the wake-ups in `news` while the context is open.

    The first try has ended when the context opens: `LISTENING` or `LOST` has been said. `LOST` is said once per loss;
    what was notified in between is not repeated, so look once on `LISTENING`.
    """
    pings = _Pings(interval=ping_interval, answer=ping_answer)
    listener = _Listener(db, on_wake, news=news, url=listen_url, pings=pings)
    task = asyncio.create_task(listener.run(), name="outlast.listen")
    try:
        await listener.tried.wait()
        yield
    finally:
        # Whatever ended the task but this cancel is a fault of ours or of `on_wake`, and is the caller's to see.
        if not task.cancel():
            await task
        await asyncio.wait((task,))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pings:
    """How often the connection is proved, and how long it has to answer."""

    interval: timedelta
    answer: timedelta


class _NoSession(Exception):
    """A LISTEN would not be ours: connections to this address share servers."""


class _Listener:
    """One listener: what it says, and whether it says so already."""

    def __init__(self, db: Database, on_wake: OnWake, *, news: frozenset[Wake], url: str | None, pings: _Pings) -> None:
        self._db = db
        self._on_wake = on_wake
        self._news = news
        self._listen_url = url
        self._pings = pings
        self._ping_channel = f"{db.schema}_{token_hex(5)}"
        self._echo = asyncio.Event()
        self._gone = asyncio.Event()
        self._is_lost: bool | None = None
        self.tried = asyncio.Event()

    async def run(self) -> None:
        """Listen until cancelled; a connection that is lost is opened anew, after growing jittered pauses."""
        try:
            await self._keep_listening(SystemRandom().random)
        finally:
            self.tried.set()

    async def _keep_listening(self, roll: Callable[[], float]) -> None:
        backoff = _FIRST_BACKOFF
        while True:
            try:
                await self._hold_connection()
            except _NoSession:
                backoff = POOLED_PAUSE
            except Exception as error:
                if translate(error) is None:
                    raise
                if self._is_lost is False:
                    backoff = _FIRST_BACKOFF
            self._say(is_lost=True)
            await asyncio.sleep(backoff.total_seconds() * (0.5 + roll() / 2))
            backoff = min(MAX_BACKOFF, backoff * 2)

    async def _hold_connection(self) -> None:
        """Open, listen, prove it, and keep proving it.

        Raises:
            TimeoutError: a ping was not heard.
            OSError: the connection went away.
            _NoSession: nobody said that the address, a pooler's, can hold a LISTEN.
        """
        connection = await self._connect(self._listen_url)
        try:
            if self._listen_url is None and await is_pooled(connection):
                raise _NoSession
            self._gone.clear()
            connection.add_termination_listener(self._on_gone)
            await connection.add_listener(self._ping_channel, self._on_echo)
            await self._prove(connection)
            for wake in self._news:
                await connection.add_listener(channel_of(self._db.schema, wake), self._heard(wake))
            self._say(is_lost=False)
            while True:
                try:
                    async with asyncio.timeout(self._pings.interval.total_seconds()):
                        await self._gone.wait()
                except TimeoutError:
                    await self._ping(connection)
                else:
                    raise ConnectionResetError("the listening connection was closed")
        finally:
            connection.terminate()

    async def _connect(self, url: str | None) -> Any:  # noqa: ANN401  asyncpg ships no types
        return await connect(
            self._db.url if url is None else url,
            application_name="outlast listen",
            command_timeout=self._pings.answer,
        )

    async def _prove(self, connection: Any) -> None:  # noqa: ANN401  asyncpg ships no types
        """Hear a ping. Through a shared server one's own is heard and nobody else's, so another connection sends it."""
        if self._listen_url is None:
            await self._ping(connection)
            return
        other = await self._connect(None)
        try:
            await self._ping(other)
        except TimeoutError:
            # It may stand at a server that others use next; nothing can be done about one that is not ours any more.
            await connection.execute("unlisten *")
            raise
        finally:
            other.terminate()

    async def _ping(self, connection: Any) -> None:  # noqa: ANN401  asyncpg ships no types
        self._echo.clear()
        await connection.execute(_PING, self._ping_channel)
        async with asyncio.timeout(self._pings.answer.total_seconds()):
            await self._echo.wait()

    def _say(self, *, is_lost: bool) -> None:
        if self._is_lost is not is_lost:
            self._is_lost = is_lost
            self._on_wake(Wake.LOST if is_lost else Wake.LISTENING)
        self.tried.set()

    def _heard(self, wake: Wake) -> Callable[..., None]:
        return lambda *_: self._on_wake(wake)

    def _on_echo(self, *_: object) -> None:
        self._echo.set()

    def _on_gone(self, _: object) -> None:
        self._gone.set()
