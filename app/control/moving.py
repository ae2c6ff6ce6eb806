"""Jobs are moved from one database to another, each exactly once wherever a move is cut.

A batch is taken out of the source, received by the target and closed in the source, each in a commit of its own. What a
move that was cut has left on the way comes first in the next one to the same target. What the target refuses goes back
behind what is ready, and is not taken by the same move again: nor is what becomes ready while it runs.
Called by the command line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from ..domain.audit import Acting, Action, AuditEntry, Target
from ..domain.errors import DriverVolatile, NotImplementedYet, RequestInvalid
from ..domain.moving import REFUSED, STAYING, Bucket, MoveCount, Verdict
from ..domain.state import State
from ..drivers.moving import MoveStore, moves_of
from ..drivers.protocol import JobDriver
from .acting import entry_of

BATCH = 500
BEGUN = "begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveStep:
    """What one step came to: jobs that arrived, by verdict, and jobs that stay, by reason."""

    verdicts: Mapping[Verdict, int] = field(default_factory=dict)
    stayed: Mapping[str, int] = field(default_factory=dict)

    @property
    def arrived(self) -> int:
        """Give how many jobs are in the target now that were not known to be."""
        return sum(count for verdict, count in self.verdicts.items() if verdict not in REFUSED)


class MoveControl:
    """A move between the stores of two drivers. `where` names each for people: an address without a password."""

    def __init__(self, source: JobDriver, target: JobDriver, *, where: tuple[str, str]) -> None:
        self._source = source
        self._target = target
        self._from, self._to = where

    async def identities(self) -> tuple[str, str]:
        """Give what tells the two stores apart.

        Raises:
            RequestInvalid: they are one.
        """
        first, second = await self._moves(self._source).identity(), await self._moves(self._target).identity()
        if first == second:
            raise RequestInvalid(
                "the target is the database that the jobs are in", fix="give the address of another database with --to"
            )
        return first, second

    async def count(self, queue: str | None = None) -> MoveCount:
        """Count what there is to move, what stays, and what is on its way since a move that was cut."""
        _, target = await self.identities()
        stats = await self._source.stats()
        depths = [one.depth for one in stats.queues if queue is None or one.name == queue]
        counts = {state: sum(depth[state] for depth in depths) for state in (State.READY, State.DELAYED, *STAYING)}
        return MoveCount(
            going={state: counts[state] for state in (State.READY, State.DELAYED)},
            staying={state: counts[state] for state in STAYING},
            on_the_way=(await self._moves(self._source).on_the_way()).get(target, 0),
        )

    async def move(self, *, queue: str | None, batch: int = BATCH, by: Acting) -> AsyncIterator[MoveStep]:
        """Move all jobs that can be, batch by batch; those of one queue, if named, and whatever is on its way."""
        first, target = await self.identities()
        source = self._moves(self._source)
        ends = ((self._source, "to", self._to, target), (self._target, "from", self._from, first))
        out, into = (_entry(by, word, address, store, queue) for _, word, address, store in ends)
        total: Counter[str] = Counter()
        async for step in self._steps(source, target, queue, batch, (out, into)):
            total.update({f"jobs_{verdict.value}": count for verdict, count in step.verdicts.items()})
            yield step
        if total:
            for driver, word, address, store in ends:
                entry = _entry(by, word, address, store, queue)
                await driver.keep_entry(entry.came_to(entry.outcome, **total))

    async def _steps(
        self, source: MoveStore, target: str, queue: str | None, batch: int, entries: tuple[AuditEntry, AuditEntry]
    ) -> AsyncIterator[MoveStep]:
        out, into = (entry.came_to(BEGUN) for entry in entries)
        upto = await source.newest()
        async for step in self._delivered(source, target, batch, into):
            yield step
        for bucket in Bucket:
            after: tuple[object, ...] | None = None
            while True:
                taken = await source.take(
                    bucket, target=target, queue=queue, after=after, upto=upto, batch=batch, audit=out
                )
                yield MoveStep(stayed={why.value: count for why, count in taken.stayed.items()})
                async for step in self._delivered(source, target, batch, into):
                    yield step
                after = taken.after
                if after is None:
                    break

    async def _delivered(
        self, source: MoveStore, target: str, batch: int, audit: AuditEntry
    ) -> AsyncIterator[MoveStep]:
        """Bring what is on its way to its end. Of moves at once each counts what it has ended itself."""
        while jobs := await source.left(target, batch=batch):
            verdicts = await self._moves(self._target).receive(jobs, audit=audit)
            refused = [job.id for job in jobs if verdicts[job.id] in REFUSED]
            ended = await source.give_back(refused) if refused else frozenset[UUID]()
            ended |= await source.close_moves([job.id for job in jobs if verdicts[job.id] not in REFUSED])
            yield MoveStep(verdicts=Counter(verdicts[move] for move in ended))

    def _moves(self, driver: JobDriver) -> MoveStore:
        found = moves_of(driver)
        if found is not None:
            return found
        if driver is self._target:
            raise volatile(driver)
        raise NotImplementedYet(
            f"the {driver.capabilities.name} driver has nothing to move", fix="give the database of the jobs with --db"
        )


def volatile(target: JobDriver) -> DriverVolatile:
    """Give the answer for a target that would lose the jobs with its process."""
    return DriverVolatile(
        f"{target.capabilities.name}:// keeps jobs in the memory of one process: moved there, they would go with it",
        fix="give the address of a PostgreSQL database with --to",
    )


def _entry(by: Acting, word: str, address: str, store: str, queue: str | None) -> AuditEntry:
    entry = entry_of(by, Action.JOBS_MOVE, Target.STORE, store, details={word: address, "queue": queue})
    if entry is None:
        raise AssertionError("somebody acts")
    return entry
