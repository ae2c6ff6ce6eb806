"""Both ends of a move in PostgreSQL: one class that gives every verb its database. Owns the composition alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from ...domain.audit import AuditEntry
from ...domain.moving import Bucket, Moving, Taken, Verdict
from ..moving import EVERY, MoveStore
from . import moves_in, moves_out
from .database import Database


class PostgresMoves:
    """A `MoveStore` in PostgreSQL. What each verb does is said by the protocol."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def identity(self) -> str:
        """Give what tells this store from every other."""
        return await moves_out.identity(self._db)

    async def newest(self) -> int:
        """Give the number that no job that becomes ready from now on is at or below."""
        return await moves_out.newest(self._db)

    async def take(
        self,
        bucket: Bucket,
        *,
        target: str,
        queue: str | None = None,
        after: tuple[object, ...] | None = None,
        upto: int = EVERY,
        batch: int = 500,
        audit: AuditEntry | None = None,
    ) -> Taken:
        """Take the next jobs of a bucket out of the store."""
        return await moves_out.take(
            self._db, bucket, target=target, queue=queue, after=after, upto=upto, batch=batch, audit=audit
        )

    async def left(self, target: str, *, batch: int = 500) -> tuple[Moving, ...]:
        """Give jobs that were taken out for a target."""
        return await moves_out.left(self._db, target, batch=batch)

    async def on_the_way(self) -> Mapping[str, int]:
        """Count the jobs on their way by target."""
        return await moves_out.on_the_way(self._db)

    async def receive(self, jobs: Sequence[Moving], *, audit: AuditEntry | None = None) -> Mapping[UUID, Verdict]:
        """Store jobs of another store."""
        return await moves_in.receive(self._db, jobs, audit=audit)

    async def close_moves(self, moves: Sequence[UUID]) -> frozenset[UUID]:
        """Forget jobs that have arrived."""
        return await moves_out.close_moves(self._db, moves)

    async def give_back(self, moves: Sequence[UUID]) -> frozenset[UUID]:
        """Put jobs that the target has refused back."""
        return await moves_in.give_back(self._db, moves)


_: type[MoveStore] = PostgresMoves
