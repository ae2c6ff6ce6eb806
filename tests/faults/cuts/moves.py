"""Operations of a move between two databases: whoever's move was cut begins it again, and each job is there once.

The jobs come from the second database to the first, whose tokens are audited.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from app.control.moving import MoveControl
from app.domain.audit import Acting
from app.domain.job import JobId
from app.domain.moving import Verdict
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.postgres.moves import PostgresMoves
from app.drivers.postgres.names import name_ids
from tests.faults.cuts.cell import Operation
from tests.support.drivers import NAME

_BY = Acting(actor="ada")


class Move(Operation):
    """A job, and one whose key is taken in the target, so that it goes back."""

    name = "move jobs to another database"

    async def arrange(self) -> None:
        await self.name_known()
        self.there = self.bench.apart.driver
        self.jobs = [await self.put(), await self.put(key="k", tags=("t",))]
        await self.enqueued(key="k")
        await name_ids(self.bench.other, {NAME})
        # Its process is not the one that reads: both have one connection each, past the blade.
        self.source = PostgresDriver(self.bench.other.engine)
        self.source._db, self.source.moves = self.bench.other, PostgresMoves(self.bench.other)

    async def put(self, **fields: Any) -> JobId:
        """Enqueue a job in the database that it is to leave."""
        return (await self.there.enqueue(self.new(**fields))).id

    async def call(self) -> Any:
        control = MoveControl(self.source, self.driver, where=("one", "two"))
        came: list[Verdict] = []
        async for step in control.move(queue=None, by=_BY):
            came += [verdict for verdict, count in step.verdicts.items() for _ in range(count)]
        return came

    async def check(self, answer: Any) -> None:
        arrived = await self.bench.ids()
        stayed = {UUID(str(row["id"])) for row in await self.bench.apart.fetch("select id from outlast.job")}
        assert not arrived & stayed, "a job is in both databases"
        assert (arrived | stayed) >= set(self.jobs), "a job is in neither"
        assert stayed == {self.jobs[1]}
        assert await self.bench.apart.fetch("select from outlast.moving") == []
        keys = await self.bench.apart.fetch("select job_id from outlast.live_key")
        assert {UUID(str(row["job_id"])) for row in keys} == stayed
        begun = await self.count("audit", "outcome = 'begun'")
        assert 1 <= begun <= (2 if self.is_cut else 1)
        self.acked |= set(self.jobs) & {JobId(one) for one in arrived}


OPERATIONS: tuple[type[Operation], ...] = (Move,)
