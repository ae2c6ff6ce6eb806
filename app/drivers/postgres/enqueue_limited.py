"""Maximum depths: how many more jobs each limited queue of a batch takes in, counted under one lock per queue.

Who enqueues into such a queue does so in a transaction that has the queue's lock, counts with a snapshot of after it,
and stores no more new jobs than there is room for: the maximum is never exceeded by enqueues. Counting costs what there
is to count; where that is much, what was found stands for `COUNT_KEPT`, and enqueues live on it. Used by `enqueue`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from ...domain.queue import COUNT_KEPT
from .connect import LOCK_TIMEOUT
from .database import Database, Raw
from .enqueue_batch import Batch
from .enqueue_columns import Column
from .enqueue_statements import FIND_KNOWN, FIND_KNOWN_BINDS, KNOWN_IDS
from .limited import LOCK, Guarded, lock_keys

# A count that met this many jobs of the queue, or tables of delayed and gated jobs of this many bytes, is not made for
# each enqueue: 5,000 index entries, or 32 MiB, are some milliseconds.
MANY_COUNTED = 5_000
_LARGE_BYTES = 32 * 1024 * 1024

_ROOMS = f"""
select q.name, q.max_depth, q.free_until > outlast.clock() and q.free is not null as is_kept,
  case when q.free_until > outlast.clock() and q.free is not null then q.free else greatest(q.max_depth - (
      (select count(*) from (select from outlast.ready r where r.queue = q.name limit q.max_depth) c)
      + (select count(*) from (select from outlast.gate g where g.queue = q.name limit q.max_depth) c)
      + (select count(*) from (select from outlast.waiting w where w.queue = q.name limit q.max_depth) c)), 0)::int
    end as free,
  pg_relation_size('outlast.waiting') + pg_relation_size('outlast.gate') > {_LARGE_BYTES} as is_large
from outlast.queue q where q.name = any($1::text[]) and q.max_depth is not null"""  # noqa: S608  numbers of our own

_KEEP = """
update outlast.queue q
set free = u.free, free_until = case when u.is_kept then q.free_until else outlast.clock() + $4::interval end
from unnest($1::text[], $2::int[], $3::boolean[]) u(name, free, is_kept) where q.name = u.name"""


class LimitedError(Exception):
    """A batch has jobs of queues with a maximum depth, and is not in a transaction that could count them."""


@dataclass(slots=True)
class _Room:
    """Of one queue. `is_kept`: it was counted by an enqueue before; `is_dear`: by this one, at some cost."""

    max_depth: int
    free: int
    is_kept: bool
    is_dear: bool


class Rooms:
    """The room in the limited queues of one batch, in one transaction."""

    def __init__(self, db: Database, conn: Raw) -> None:
        self._db = db
        self._conn = conn
        self._rooms: dict[str, _Room] = {}

    @property
    def are_open(self) -> bool:
        """Say whether limited queues were found and counted."""
        return bool(self._rooms)

    @property
    def names(self) -> list[str]:
        """Give the queues that were."""
        return sorted(self._rooms)

    async def open(self, queues: AbstractSet[str]) -> None:
        """Lock and count those of these queues that are known to be limited; forget those that are not any more."""
        known = limited_among(self._db, queues)
        if not known:
            return
        keys = lock_keys(self._db.schema, Guarded.DEPTH, known)
        await self._conn.execute(self._db.in_schema(LOCK), keys, str(int(LOCK_TIMEOUT.total_seconds() * 1000)))
        rows = await self._conn.fetch(self._db.in_schema(_ROOMS), sorted(known))
        for row in rows:
            most, free = row["max_depth"], row["free"]
            is_dear = not row["is_kept"] and (row["is_large"] or most - free >= MANY_COUNTED)
            self._rooms[row["name"]] = _Room(most, free, row["is_kept"], is_dear)
        self._db.limited.depth.difference_update(known - self._rooms.keys())

    async def fit(self, batch: Batch, columns: Sequence[Column]) -> bool:
        """Refuse the new jobs of a round that there is no room for; False when the round has to be made again.

        Of a queue with less room than jobs it is looked at which of them are there already.
        """
        over = self._over(batch)
        if not over:
            return True
        asked = {index for index, _ in batch.sent()}
        batch.repeated(await self._conn.fetch(self._db.in_schema(KNOWN_IDS), *batch.ids()))
        batch.found(await self._conn.fetch(self._db.in_schema(FIND_KNOWN), *columns[:FIND_KNOWN_BINDS]))
        if batch.is_pending:
            batch.columns()
            for queue, indexes in self._over(batch).items():
                room = self._rooms[queue]
                # One that comes into the round only now is not looked at yet: it may be there already, too.
                batch.refuse_full((index for index in indexes[room.free :] if index in asked), room.max_depth)
        return False

    def took(self, queues: Iterable[str]) -> None:
        """Note the new jobs of a round by their queues."""
        for queue in queues:
            if queue in self._rooms:
                self._rooms[queue].free -= 1

    async def close(self) -> None:
        """Leave behind what is still free in queues that it was dear to count."""
        kept = {name: room for name, room in self._rooms.items() if room.is_kept or room.is_dear}
        if kept:
            free = [max(room.free, 0) for room in kept.values()]
            are_kept = [room.is_kept for room in kept.values()]
            await self._conn.execute(self._db.in_schema(_KEEP), list(kept), free, are_kept, COUNT_KEPT)

    def _over(self, batch: Batch) -> dict[str, list[int]]:
        """Give the jobs of a round, by queue, of those queues whose room they might exceed."""
        indexes: defaultdict[str, list[int]] = defaultdict(list)
        for index, queue in batch.sent():
            if queue in self._rooms:
                indexes[queue].append(index)
        return {queue: found for queue, found in indexes.items() if len(found) > self._rooms[queue].free}


def limited_among(db: Database, queues: AbstractSet[str]) -> set[str]:
    """Give those of these queues that this process knows to have a maximum depth."""
    return db.limited.depth & queues if db.limited.depth else set()
