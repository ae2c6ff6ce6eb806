"""Steps of purges that are cut: whoever comes next goes on with what is left, and nothing goes that is not over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app.domain.job import JobId
from app.domain.outcome import Completed, Settlement
from app.domain.retention import Chore, EndedRule, Retention, TableRule
from tests.faults.cuts.cell import Operation

_AT_ONCE = EndedRule.older_than(timedelta(seconds=-1))
_NOTHING_KEPT = Retention(done=timedelta(microseconds=1), dead=timedelta(microseconds=1))
_VISITS = TableRule(table="visits", older_than=timedelta(days=1))


class PurgeEnded(Operation):
    """A step of an operator's; the job that lives stays."""

    name = "purge of ended jobs"

    async def arrange(self) -> None:
        for _ in range(2):
            job = await self.started()
            await self.straight.settle([Settlement(job.token, Completed(), False)])
        self.held.clear()
        self.acked.clear()  # they may go
        self.living: JobId = await self.enqueued()

    async def call(self) -> Any:
        return await self.driver.purge_ended(_AT_ONCE)

    async def check(self, answer: Any) -> None:
        assert await self.count("finished") == 0
        assert [row["id"] for row in await self.fetch("select id from outlast.job")] == [self.living]


class TidyEnded(PurgeEnded):
    """A step of a round: its place is kept with it."""

    name = "round over ended jobs"

    async def call(self) -> Any:
        return await self.driver.tidy(Chore.JOBS, _NOTHING_KEPT, now=True)

    async def check(self, answer: Any) -> None:
        await super().check(answer)
        (mark,) = await self.fetch("select after, round_at from outlast.purge_mark where kind = 'jobs'")
        assert (mark["after"], mark["round_at"] is None) == (None, False)


class TidyEvents(Operation):
    """First a step towards the jobs that may ask for events, then one over the events."""

    name = "round over events"

    async def arrange(self) -> None:
        await self.fetch(
            "insert into outlast.event(id, tenant, name, key, payload, emitted_at)"
            " select gen_random_uuid(), 'default', 'a', 'b', 'null', outlast.clock() - interval '40 days'"
        )

    async def call(self) -> Any:
        return await self.driver.tidy(Chore.EVENTS, Retention(), now=True)

    async def check(self, answer: Any) -> None:
        assert await self.count("event") == 0


class TidyTable(Operation):
    """The application's rows and the round's place go in one commit."""

    name = "round over a table"

    async def arrange(self) -> None:
        await self.fetch("create table if not exists visits(at int, created_at timestamptz)")
        await self.fetch("truncate visits")
        await self.fetch("insert into visits select i, now() - i * interval '1 day' from generate_series(0, 3) i")

    async def call(self) -> Any:
        return await self.driver.tidy_table(_VISITS, now=True)

    async def check(self, answer: Any) -> None:
        assert [row["at"] for row in await self.fetch("select at from visits")] == [0]


PURGES: tuple[type[Operation], ...] = (PurgeEnded, TidyEnded, TidyEvents, TidyTable)
