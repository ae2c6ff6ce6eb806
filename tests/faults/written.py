"""One row of the second history, as triggers of the tests wrote it, and what it is read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID


class Asked(Protocol):
    """A database that can be asked."""

    async def fetch(self, sql: str, *args: object) -> list[Any]:
        """Run a statement and give its rows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One audited row: written at `at` by a transaction that had begun at `began`; others are told by `seen`.

    `suspends`: by the statement that suspends runs, or makes them ready at once. Instants are seconds since the epoch.
    `seen` is the snapshot of the audit itself: what had committed by then. What is of no job has the id of nobody.
    """

    id: int
    txid: int
    place: str
    op: str
    job_id: UUID
    row: dict[str, Any]
    at: float
    began: float
    seen: str
    suspends: bool
