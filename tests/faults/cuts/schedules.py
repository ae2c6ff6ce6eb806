"""Operations of schedulers, and of operators on schedules. A scheduler's next tick plans anew, with jobs of new ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from app.domain.schedule import Declaration, OccurrenceOutcome, Overlap, Plan, Planned, ScheduleView
from app.drivers.postgres.schedules import PostgresSchedules
from tests.faults.cuts.cell import Operation

_NAME = "nightly"
_AT = datetime(2026, 1, 1, 3, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)


def _declared(version: str = "1", cron: str = "* * * * *") -> Declaration:
    return Declaration(name=_NAME, code_version=version, cron=cron, tz="UTC", document="{}")


class OfSchedules(Operation):
    """A schedule that is declared."""

    def store(self) -> PostgresSchedules:
        """Give the schedules past the blade."""
        return PostgresSchedules(self.driver._db)

    def straight_store(self) -> PostgresSchedules:
        """Give the schedules beside it."""
        return PostgresSchedules(self.straight._db)

    async def arrange(self) -> None:
        await self.name_known()
        await self.straight_store().declare([_declared()])

    async def view(self) -> ScheduleView:
        found = await self.straight_store().find(_NAME)
        assert found is not None
        return found

    async def jobs(self) -> set[Any]:
        """Give the jobs of all occurrences, which is how their callers are told of them."""
        return {row.job_id for row in (await self.view()).occurrences if row.job_id is not None}


class Declare(OfSchedules):
    name = "declare a schedule"

    async def call(self) -> Any:
        await self.store().declare([_declared("2", "0 3 * * *")], is_start=True)

    async def check(self, answer: Any) -> None:
        view = await self.view()
        assert (view.code_version, view.cron) == ("2", "0 3 * * *")
        assert await self.count("declaration") == 2


class Decide(OfSchedules):
    """Two times that are due; what the cut tick decided, the next finds decided."""

    name = "decide occurrences"
    overlap = Overlap.ALLOW
    fired = 2

    async def arrange(self) -> None:
        await super().arrange()
        await self.fetch("update outlast.schedule set watermark = $1", _AT - 2 * _MINUTE)

    async def call(self) -> Any:
        planned = tuple(Planned(at=_AT + number * _MINUTE, job=self.new()) for number in range(2))
        skipped = Planned(at=_AT - _MINUTE, why="catch_up")
        return await self.store().decide(
            Plan(
                name=_NAME,
                digest=_declared().digest,
                until=_AT + _MINUTE,
                planned=(skipped, *planned),
                overlap=self.overlap,
            )
        )

    async def check(self, answer: Any) -> None:
        rows = (await self.view()).occurrences
        assert [row.at for row in rows] == [_AT + _MINUTE, _AT, _AT - _MINUTE]
        fired = [row for row in rows if row.outcome is OccurrenceOutcome.FIRED]
        assert len(fired) == self.fired
        assert len(answer) == (0 if self.is_cut and self.is_stored else 3)
        self.acked |= await self.jobs()
        assert await self.count("job") == self.fired + 1


class DecideSkipping(Decide):
    name = "decide occurrences that skip"
    overlap = Overlap.SKIP
    fired = 1


class Fire(OfSchedules):
    """An operator who does not know looks at the last occurrence, and fires again if it is not there."""

    name = "fire a schedule by hand"

    async def call(self) -> Any:
        return await self.store().fire(_NAME, self.new(), by="ada")

    async def again(self) -> Any:
        return None if await self.jobs() else await self.call()

    async def check(self, answer: Any) -> None:
        (row,) = (await self.view()).occurrences
        assert (row.by, row.outcome) == ("ada", OccurrenceOutcome.FIRED)
        self.acked |= await self.jobs()
        assert await self.count("job") == 2


class Pause(OfSchedules):
    name = "pause a schedule"

    async def call(self) -> Any:
        await self.store().pause(_NAME, by="ada", reason="moves")

    async def check(self, answer: Any) -> None:
        view = await self.view()
        assert (view.paused_by, view.pause_reason) == ("ada", "moves")


class Resume(OfSchedules):
    name = "resume a schedule"

    async def arrange(self) -> None:
        await super().arrange()
        await self.straight_store().pause(_NAME, by="ada")

    async def call(self) -> Any:
        await self.store().resume(_NAME)

    async def check(self, answer: Any) -> None:
        view = await self.view()
        assert (view.paused_at, view.paused_by) == (None, None)


class Trim(OfSchedules):
    name = "trim occurrences"

    async def arrange(self) -> None:
        await super().arrange()
        await self.fetch(
            "insert into outlast.occurrence(schedule, at, outcome, decided_at, fired_by)"
            " select 'nightly', outlast.clock() - i * interval '1 h', 1, outlast.clock() - interval '100 days', 'ada'"
            " from generate_series(1, 5) i"
        )

    async def call(self) -> Any:
        return await self.store().trim(10)

    async def check(self, answer: Any) -> None:
        assert answer == (0 if self.is_cut and self.is_stored else 5)
        assert await self.count("occurrence") == 0


OPERATIONS: tuple[type[Operation], ...] = (Declare, Decide, DecideSkipping, Fire, Pause, Resume, Trim)
