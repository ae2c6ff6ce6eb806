"""Operations on queues that are held back, and of producers and workers whose queue is limited."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from app.domain.job import ClaimedJob, Enqueued
from app.domain.queue import QueueChange
from app.domain.state import State
from tests.faults.cuts.cell import Operation
from tests.faults.cuts.enqueue import Enqueue
from tests.faults.cuts.worker import Claim

_NONE = QueueChange(concurrency=None, max_depth=None)


class PauseUntil(Operation):
    name = "pause_queue until a time"

    async def arrange(self) -> None:
        await self.enqueued()
        self.until = await self.straight.database_time() + timedelta(hours=1)

    async def call(self) -> Any:
        await self.driver.pause_queue("default", by="an operator", until=self.until)

    async def check(self, answer: Any) -> None:
        facts = await self.straight.queue_facts("default")
        assert facts.pause is not None
        assert (facts.pause.by, facts.pause.until) == ("an operator", self.until)
        await self.straight.resume_queue("default")


class SetLimits(Operation):
    name = "set_queue"

    async def arrange(self) -> None:
        await self.enqueued()

    async def call(self) -> Any:
        await self.driver.set_queue("default", QueueChange(concurrency=2, max_depth=3))

    async def check(self, answer: Any) -> None:
        facts = await self.straight.queue_facts("default")
        assert (facts.concurrency, facts.max_depth) == (2, 3)
        await self.straight.set_queue("default", _NONE)


class TakeLimitsAway(SetLimits):
    """The row goes in a statement of its own: one without a setting says nothing."""

    name = "set_queue to nothing"

    async def arrange(self) -> None:
        await super().arrange()
        await self.straight.set_queue("default", QueueChange(concurrency=2, max_depth=3))

    async def call(self) -> Any:
        await self.driver.set_queue("default", _NONE)

    async def check(self, answer: Any) -> None:
        facts = await self.straight.queue_facts("default")
        assert (facts.concurrency, facts.max_depth) == (None, None)
        assert await self.count("queue") == 0


class ClaimLimited(Claim):
    """What came with a reply that was lost has places until it is handed back, and no longer."""

    name = "claim of a limited queue"

    async def arrange(self) -> None:
        await super().arrange()
        await self.straight.set_queue("default", QueueChange(concurrency=3))

    async def check(self, answer: tuple[ClaimedJob, ...]) -> None:
        await super().check(answer)
        assert (await self.straight.queue_facts("default")).running == 3
        await self.straight.set_queue("default", _NONE)


class EnqueueCounted(Enqueue):
    """Repeated, it finds its own job, also when that has taken the last place."""

    name = "enqueue into a queue with a maximum depth"

    async def arrange(self) -> None:
        await self.straight.set_queue("default", QueueChange(max_depth=2))
        await super().arrange()

    async def check(self, answer: Enqueued) -> None:
        await super().check(answer)
        (queue,) = await self.straight.queues()
        assert queue.depth[State.READY] == 2
        await self.straight.set_queue("default", _NONE)


OPERATIONS: tuple[type[Operation], ...] = (PauseUntil, SetLimits, TakeLimitsAway, ClaimLimited, EnqueueCounted)
