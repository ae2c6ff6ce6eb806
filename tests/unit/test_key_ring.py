"""What a process knows of the API keys: young enough, or read after it was asked, and never waited for without end."""

from __future__ import annotations

import asyncio

import pytest

from app.control.key_ring import OLD_SECONDS, KeyRing
from app.domain.api_key import Identity, KeyId, KnownKey
from app.domain.errors import DriverUnavailable
from app.drivers.memory.api_keys import MemoryKeys
from app.drivers.memory.clock import SystemClock
from app.drivers.memory.store import Store

KEY = KeyId("0" * 16)
KNOWN = KnownKey(identity=Identity(name="ci", tenant=None, scopes=frozenset(), key_id=KEY), digests=(b"d" * 32,))


class SlowStore(MemoryKeys):
    """Each read takes longer than what it says is good for; `begin` and `answer` tell a test where it is."""

    def __init__(self) -> None:
        super().__init__(Store(SystemClock()))
        self.now = 0.0
        self.keys_now: tuple[KnownKey, ...] = (KNOWN,)
        self.reads = 0
        self.begun = asyncio.Event()
        self.answer = asyncio.Event()

    async def known(self) -> tuple[KnownKey, ...]:
        found = self.keys_now
        self.reads += 1
        self.begun.set()
        await self.answer.wait()
        self.now += OLD_SECONDS + 0.2
        return found


async def test_a_store_that_answers_late_is_asked_twice_at_most() -> None:
    store = SlowStore()
    store.answer.set()
    ring = KeyRing(store, monotonic=lambda: store.now)
    async with asyncio.timeout(5):
        found = await asyncio.gather(*(ring.find(KEY) for _ in range(20)))
        assert found == [KNOWN] * 20
        assert await ring.find(KEY) == KNOWN
        await ring.close()
    assert store.reads <= 2 + 1 + 1, "one more for the later call, one beside it"


async def test_a_read_that_began_before_it_was_asked_is_not_what_is_known_now() -> None:
    """The key is revoked while a late read is under way: who asks afterwards does not get in by it."""
    store = SlowStore()
    ring = KeyRing(store, monotonic=lambda: store.now)
    first = asyncio.ensure_future(ring.find(KEY))
    await store.begun.wait()
    store.keys_now, store.now = (), 1.0
    second = asyncio.ensure_future(ring.find(KEY))
    await asyncio.sleep(0)
    store.answer.set()
    async with asyncio.timeout(5):
        assert (await first, await second) == (KNOWN, None)
        await ring.close()


async def test_a_store_that_fails_is_told_and_not_asked_for_ever() -> None:
    class Away(SlowStore):
        async def known(self) -> tuple[KnownKey, ...]:
            self.reads += 1
            raise DriverUnavailable("no answer", fix="wait")

    store = Away()
    ring = KeyRing(store, monotonic=lambda: store.now)
    with pytest.raises(DriverUnavailable):
        await ring.find(KEY)
    assert store.reads == 1
