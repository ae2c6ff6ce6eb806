"""Which queues this process knows to be limited or fair, and the locks under which their jobs are counted; keys it met.

What is known here only chooses the way: a queue is found to be limited by the statements themselves, which then take
nothing of it, and what is known of one whose limit has gone is forgotten the next time; a key that has been forgotten
in the store is made again. No I/O, one per process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID

# Of claims that ended unheard, such as those of a worker that lost its lease, nothing takes the note away.
_MOST_NOTED = 100_000
_MOST_KEYS = 10_000

# Claims, and likewise enqueues, of one limited queue go one after the other. A lock that is on no row, so that the
# transaction has no id before its claim, as the low-water mark wants it. The first column holds for the transaction.
LOCK = """
select pg_advisory_xact_lock(key) from (
  select key, set_config('lock_timeout', $2, true) from unnest($1::bigint[]) key order by key offset 0) k"""
LOCK_NOT_HAD = "55P03"


class Guarded(StrEnum):
    """What is counted under a lock."""

    RUNNING = "running"
    DEPTH = "depth"


@dataclass(slots=True)
class Limited:
    """What one process knows. `depth` are queues known to have a maximum depth, `fair` those known to be fair."""

    depth: set[str] = field(default_factory=set)
    fair: set[str] = field(default_factory=set)
    _claims: set[int] = field(default_factory=set)
    _keys: set[UUID] = field(default_factory=set)

    def began(self, fences: Iterable[int]) -> None:
        """Note claims that have places of limited queues."""
        if len(self._claims) > _MOST_NOTED:
            self._claims.clear()
        self._claims.update(fences)

    def has_any(self, fences: Iterable[int]) -> bool:
        """Say whether one of these claims has such a place."""
        return bool(self._claims) and not self._claims.isdisjoint(fences)

    def ended(self, fences: Iterable[int]) -> bool:
        """Forget claims; says whether one of them had such a place."""
        if not self._claims:
            return False
        before = len(self._claims)
        self._claims.difference_update(fences)
        return len(self._claims) < before

    def unmet(self, keys: Iterable[UUID]) -> set[UUID]:
        """Give those of these keys of limits that this process has not met, and that may not be there yet."""
        return set(keys) - self._keys

    def meet(self, keys: Iterable[UUID]) -> None:
        """Note keys of limits that are there."""
        if len(self._keys) > _MOST_KEYS:
            self.forget_keys()
        self._keys.update(keys)

    def forget_keys(self) -> None:
        """Have met none of them."""
        self._keys.clear()


def lock_keys(schema: str, guarded: Guarded, queues: Iterable[str]) -> list[int]:
    """Give the locks of these queues, in their order."""
    texts = (f"outlast {schema} {guarded} {queue}" for queue in queues)
    hashes = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return sorted({int.from_bytes(digest, signed=True) for digest in hashes})
