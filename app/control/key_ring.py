"""The API keys in force, and the sessions that were ended, as one process knows them.

All of them, read again whenever they are asked for and old. Never older than four seconds when one is looked up, or
else read after that was asked, so that a key which is revoked opens nothing anywhere five seconds later. Requests do
not wait for a read while what is known is young enough, and for two at most however slow the store is; an unknown id
costs what a known one costs. While the store is away no key is known for longer than that. Called by `guard`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from uuid import UUID

from ..domain.api_key import KeyId, KnownKey
from ..domain.errors import DriverUnavailable, OutlastError
from ..drivers.api_keys import KeyStore
from ..lifecycle.tasks import start_task

# Read again beside the requests from this age on; before them from that one on.
YOUNG_SECONDS = 1.0
OLD_SECONDS = 4.0
# Between two reads for the sake of an id that is not known: a key made a moment ago is asked for.
_BREATH_SECONDS = 0.25
# One that is under way may have begun before it was asked; the one after it has not.
_MOST_READS = 2


class KeyRing:
    """Every key in force. Used on one loop."""

    def __init__(self, store: KeyStore, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._known: dict[str, KnownKey] = {}
        self._ended: frozenset[UUID] = frozenset()
        self._asked_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def find(self, key_id: KeyId) -> KnownKey | None:
        """Give a key in force, None for one that is not.

        Raises:
            DriverUnavailable: what is known is too old, and the store does not answer.
        """
        await self._know(since=self._monotonic())
        known = self._known.get(key_id)
        if self._age() > (_BREATH_SECONDS if known is None else YOUNG_SECONDS):
            self._reading = self._read()
        return known

    async def has_ended(self, session: UUID) -> bool:
        """Say whether a session that was begun with a key has been ended; known as late as a key that is revoked.

        Raises:
            DriverUnavailable: as `find`.
        """
        await self._know(since=self._monotonic())
        return session in self._ended

    async def has_any(self) -> bool:
        """Say whether any key is in force, as the store says now."""
        return bool(await self._store.known())

    async def read_again(self) -> None:
        """Know what the store knows now: something was changed here."""
        await asyncio.shield(self._read())  # may have begun before the change
        await asyncio.shield(self._read())

    async def close(self) -> None:
        """Await the read under way."""
        if self._reading is not None:
            await asyncio.wait((self._reading,))

    async def _know(self, *, since: float) -> None:
        """Let what is known be young enough, or come from a read that began at or after an instant."""
        for _ in range(_MOST_READS):
            if self._age() <= OLD_SECONDS or self._asked_at >= since:
                return
            await asyncio.shield(self._read())
        if self._asked_at < since:
            raise DriverUnavailable("what keys there are could not be read", fix="repeat the call after a second")

    def _age(self) -> float:
        return self._monotonic() - self._asked_at

    def _read(self) -> asyncio.Task[None]:
        """Give the read under way, or begin one."""
        if self._reading is None or self._reading.done():
            self._reading = start_task(self._take(), name="outlast.keys")
            self._reading.add_done_callback(_heard)
        return self._reading

    async def _take(self) -> None:
        asked_at = self._monotonic()
        found, ended = await self._store.known(), await self._store.ended_sessions()
        self._ended = ended
        self._known = {each.identity.key_id: each for each in found}
        self._asked_at = asked_at


def _heard(read: asyncio.Task[None]) -> None:
    """Let a read that nobody waited for fail in silence where the store is away: who needs it asks again."""
    if not read.cancelled() and not isinstance(read.exception(), OutlastError | None):
        read.get_loop().call_exception_handler({"message": "reading the API keys failed", "task": read})
