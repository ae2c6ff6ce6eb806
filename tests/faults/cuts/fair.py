"""Operations of fair queues: what lines jobs up, what lets them in by turns, and producers of such a queue."""

from __future__ import annotations

from typing import Any

from app.domain.job import ClaimedJob, Enqueued
from app.domain.limit import Admitted
from app.domain.queue import QueueChange
from tests.faults.cuts.cell import Operation, asked_by
from tests.faults.cuts.enqueue import Enqueue

_FAIR = QueueChange(is_fair=True, weights={"a": 2})
_AS_BEFORE = QueueChange(is_fair=False)


class MakeFair(Operation):
    """The jobs that wait are lined up after the setting is committed: repeated, or by a sweep."""

    name = "set_queue to fair"

    async def arrange(self) -> None:
        self.worker = await self.registered()
        for _ in range(2):
            await self.enqueued()

    async def call(self) -> Any:
        await self.driver.set_queue("default", _FAIR)

    async def check(self, answer: Any) -> None:
        (queue,) = await self.straight.queues()
        assert (queue.is_fair, queue.weights) == (True, {"a": 2})
        await self.straight.line_up()  # where the answer came, but what was said after the commit was lost
        assert await self.straight.claim(asked_by(self.worker)) == ()
        assert len(await self.let_in()) == 2

    async def let_in(self) -> list[ClaimedJob]:
        """Let in what there is, straight, and leave the queue as it was."""
        jobs = list((await self.straight.admit(asked_by(self.worker))).jobs)
        self.held |= {job.token for job in jobs}
        assert await self.count("gate") == 0
        await self.straight.set_queue("default", _AS_BEFORE)
        return jobs


class LineUp(MakeFair):
    """A job whose attempt had begun before its queue was fair."""

    name = "line_up"

    async def arrange(self) -> None:
        await super().arrange()
        jobs = (await self.straight.claim(asked_by(self.worker))) or ()
        await self.straight.set_queue("default", _FAIR)
        await self.straight.release([job.token for job in jobs], cause="drain")

    async def call(self) -> Any:
        return await self.driver.line_up()

    async def check(self, answer: Any) -> None:
        assert answer == (0 if self.is_second else 2)
        assert len(await self.let_in()) == 2


class AdmitInTurns(MakeFair):
    """Once its reply was lost, jobs are handed back before the next look; a turn may be counted that was not had."""

    name = "admit of a fair queue"

    async def arrange(self) -> None:
        await super().arrange()
        await self.straight.set_queue("default", _FAIR)
        await self.driver.admit(asked_by(self.worker, queues=("nothing",)))  # the name's number is known from now on

    async def call(self) -> Any:
        return await self.driver.admit(asked_by(self.worker))

    async def again(self) -> Any:
        now = await self.driver.database_time()
        assert await self.driver.reconcile(self.worker, [], before=now) in {0, 2}
        return await self.call()

    async def check(self, answer: Any) -> None:
        assert isinstance(answer, Admitted)
        assert len(answer.jobs) == 2
        self.held = {job.token for job in answer.jobs}
        assert await self.let_in() == []


class EnqueueFair(Enqueue):
    name = "enqueue into a fair queue"

    async def arrange(self) -> None:
        self.worker = await self.registered()
        await self.straight.set_queue("default", _FAIR)
        await super().arrange()

    async def check(self, answer: Enqueued) -> None:
        await super().check(answer)
        jobs = (await self.straight.admit(asked_by(self.worker))).jobs
        self.held = {job.token for job in jobs}
        assert len(jobs) == 2
        await self.straight.set_queue("default", _AS_BEFORE)


OPERATIONS: tuple[type[Operation], ...] = (MakeFair, LineUp, AdmitInTurns, EnqueueFair)
