"""The vocabulary of moving jobs between databases: taken out of one, received by another, closed in the first.

Apart from the job store's protocol because only the command line asks for it, and because a store that does not outlive
its process has neither side of it. Implemented by the PostgreSQL driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable
from uuid import UUID

from ..domain.audit import AuditEntry
from ..domain.moving import Bucket, Moving, Taken, Verdict

# A number that no job comes to.
EVERY = 2**63 - 1


class MoveStore(Protocol):
    """Both ends of a move. Each verb is one transaction; repeating any of them is safe."""

    async def identity(self) -> str:
        """Give what tells this store from every other, however its address is written."""
        ...

    async def newest(self) -> int:
        """Give the number that no job that becomes ready from now on is at or below."""
        ...

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
        """Take the next jobs of a bucket out of the store, to bring them to the store of the identity `target`.

        From then on no verb on jobs finds them here; their keys stay taken. What somebody else has in hand is passed
        over, and so are ready jobs whose number is above `upto`: with `newest` of the time when a move began, what it
        gave back since is not taken again. The row of the audit is kept with the first that are taken.
        """
        ...

    async def left(self, target: str, *, batch: int = 500) -> tuple[Moving, ...]:
        """Give jobs that were taken out for `target` and are not closed, in the order they were taken in.

        Raises:
            JobStateConflict: one was taken so long ago that `target` may have forgotten whether it has come.
        """
        ...

    async def on_the_way(self) -> Mapping[str, int]:
        """Count the jobs that were taken out and are not closed, by target."""
        ...

    async def receive(self, jobs: Sequence[Moving], *, audit: AuditEntry | None = None) -> Mapping[UUID, Verdict]:
        """Store jobs of another store, all that can be, under their ids; gives the verdict by the id of the move.

        One that was received before, by its move, is `moved` and not stored again, even when it has ended and is
        purged since.
        """
        ...

    async def close_moves(self, moves: Sequence[UUID]) -> frozenset[UUID]:
        """Forget jobs that have arrived, and free their keys; gives those that nobody had closed before."""
        ...

    async def give_back(self, moves: Sequence[UUID]) -> frozenset[UUID]:
        """Put jobs that the target has refused back, behind what is ready; gives those nobody had given back before."""
        ...


@runtime_checkable
class HasMoves(Protocol):
    """A driver whose jobs can be moved."""

    @property
    def moves(self) -> MoveStore:
        """Give the verbs of a move over the database that holds the jobs."""
        ...


def moves_of(driver: object) -> MoveStore | None:
    """Give the verbs of a move over a driver's jobs, None for a driver without."""
    return driver.moves if isinstance(driver, HasMoves) else None
