"""The bell-ringer: one held connection that sends NOTIFY, and the one task that uses it.

Apart from the pool, so that a wake-up waits for no verb and no verb for a wake-up. What gathers during a round goes out
in the next. A round that fails is repeated on another connection, after growing jittered pauses, until it is sent or
the driver closes; until then listeners poll. Owned by `database`, rung through `notify`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from sqlalchemy.engine import URL

from ..protocol import Wake
from .apart import start_apart
from .connect import connect
from .sqlstate import translate

COMMAND_TIMEOUT = timedelta(seconds=5)
MAX_BACKOFF_SECONDS = 5.0
_FIRST_BACKOFF_SECONDS = 0.1
_LAST_ROUND_SECONDS = 1.0

# Its own commit need not wait for the disk: after a server crash nobody is listening.
_NOTIFY = "select set_config('synchronous_commit', 'off', true), pg_notify(channel, '') from unnest($1::text[]) channel"


class Ringer:
    """Sends wake-ups. Nothing is connected before the first one."""

    def __init__(self, url: URL, schema: str, *, roll: Callable[[], float]) -> None:
        self._url = url
        self._schema = schema
        self._roll = roll
        self._waiting: set[Wake] = set()
        self._ringing: asyncio.Task[None] | None = None
        self._connection: Any = None
        self._closing = asyncio.Event()

    def ring(self, wakes: Iterable[Wake]) -> None:
        """Have `wakes` sent soon, each kind once however often it was asked for. Never fails, never waits."""
        if self._closing.is_set():
            return
        self._waiting.update(wakes)
        if self._waiting and (self._ringing is None or self._ringing.done()):
            self._ringing = start_apart(self._ring(), name="outlast.notify")

    async def quiet(self) -> None:
        """Come back once nothing waits to be sent, at most after a second."""
        if self._ringing is not None and not self._ringing.done():
            await asyncio.wait((self._ringing,), timeout=_LAST_ROUND_SECONDS)

    async def close(self) -> None:
        """Send what has gathered, at most for a second, and end the connection. May be called again."""
        self._closing.set()
        await self.quiet()
        if self._ringing is not None:
            self._ringing.cancel()
            await asyncio.wait((self._ringing,))
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                await connection.close(timeout=_LAST_ROUND_SECONDS)
            except Exception:  # noqa: BLE001  the last wake-up has been sent, or polling finds what it spoke of
                connection.terminate()

    async def _ring(self) -> None:
        backoff = _FIRST_BACKOFF_SECONDS
        while self._waiting:
            wakes, self._waiting = self._waiting, set()
            try:
                await self._send(wakes)
            except BaseException as error:
                self._waiting |= wakes
                # An end that is not the store's doing is met by the next ring, which sends these along.
                if not isinstance(error, Exception) or translate(error) is None:
                    raise
                # What it speaks of is committed, and polling finds it. The server's queue of notifications may be
                # full, too, when a session listens and never reads.
                if await self._is_over(within=backoff * (0.5 + self._roll() / 2)):
                    return
                backoff = min(MAX_BACKOFF_SECONDS, backoff * 2)
            else:
                backoff = _FIRST_BACKOFF_SECONDS

    async def _is_over(self, *, within: float) -> bool:
        """Wait that many seconds, or until the driver closes, which is then said."""
        try:
            async with asyncio.timeout(within):
                return await self._closing.wait()
        except TimeoutError:
            return False

    async def _send(self, wakes: Iterable[Wake]) -> None:
        """Send one round; after any failure, being cancelled in mid-statement included, the connection is cut."""
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await connect(
                    self._url, application_name="outlast notify", command_timeout=COMMAND_TIMEOUT
                )
            await self._connection.execute(_NOTIFY, [channel_of(self._schema, wake) for wake in wakes])
        except BaseException:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.terminate()
            raise


def channel_of(schema: str, wake: Wake) -> str:
    """Give the channel of a wake-up; one per schema, so that two in a database do not wake each other."""
    return f"{schema}_{wake.value}"
