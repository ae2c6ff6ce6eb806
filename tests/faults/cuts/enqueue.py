"""Operations of producers: enqueue in every form. Their caller repeats the same write under the same id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

from app.domain.job import Enqueued, NewJob
from tests.faults.cuts.cell import Operation, ids_of
from tests.support.drivers import new_id

_DAY = timedelta(days=1)


class Enqueue(Operation):
    """One job."""

    name = "enqueue"
    fields: ClassVar[dict[str, Any]] = {}

    async def arrange(self) -> None:
        """Mint the id."""
        self.job = self.new(**self.fields)
        await self.name_known()

    async def call(self) -> Enqueued:
        return await self.driver.enqueue(self.job)

    async def check(self, answer: Enqueued) -> None:
        assert answer.id == self.job.id
        assert not answer.deduped
        self.acked.add(answer.id)


class EnqueueKeyed(Enqueue):
    name = "enqueue with a key"
    fields: ClassVar[dict[str, Any]] = {"key": "order:1"}


class EnqueueWindow(Enqueue):
    name = "enqueue with a key and its window"
    fields: ClassVar[dict[str, Any]] = {"key": "order:1", "dedupe_for": _DAY}

    async def check(self, answer: Enqueued) -> None:
        await super().check(answer)
        assert answer.key_expires_at is not None


class EnqueueDelayed(Enqueue):
    name = "enqueue delayed"
    fields: ClassVar[dict[str, Any]] = {"delay": _DAY}


class EnqueueLimited(Enqueue):
    name = "enqueue with time limits"
    fields: ClassVar[dict[str, Any]] = {"max_queue_time": _DAY, "deadline": _DAY}

    async def check(self, answer: Enqueued) -> None:
        await super().check(answer)
        assert await self.count("expiry") == 2


class EnqueueSource(Enqueue):
    name = "enqueue with a key and a source"

    async def arrange(self) -> None:
        await super().arrange()
        self.job = self.new(key="order:1", source_id=new_id())

    async def check(self, answer: Enqueued) -> None:
        assert answer.id == self.job.id
        self.acked.add(answer.id)
        assert await self.count("source", "source_id = $1 and job_id = $2", self.job.source_id, self.job.id) == 1


class EnqueueSourceToHolder(EnqueueSource):
    """The key is held: the source leads to its holder."""

    name = "enqueue with a source whose key is held"

    async def arrange(self) -> None:
        await super().arrange()
        self.holder = await self.enqueued(key="order:1")

    async def check(self, answer: Enqueued) -> None:
        assert answer.id == self.holder
        assert answer.deduped
        assert await self.count("source", "source_id = $1 and job_id = $2", self.job.source_id, self.holder) == 1
        assert self.job.id not in await self.bench.ids()


class EnqueueFirstOfName(Enqueue):
    name = "enqueue of a name that is new to the process"

    async def arrange(self) -> None:
        """Nothing knows the name."""
        self.job = self.new(name=f"demo.{new_id().hex}")


class EnqueueByAnotherId(EnqueueKeyed):
    """The caller died with its id, and another one begins anew with the same key: it comes to the same job."""

    name = "enqueue with a key, repeated by a client that starts anew"

    async def again(self) -> Enqueued:
        self.second = self.new(key="order:1")
        return await self.driver.enqueue(self.second)

    async def check(self, answer: Enqueued) -> None:
        is_first = self.is_stored
        assert answer.id == (self.job.id if is_first else self.second.id)
        assert answer.deduped == (is_first and self.is_cut)
        self.acked.add(answer.id)


class EnqueueMany(Operation):
    """Many, all or none."""

    name = "enqueue_many"

    async def arrange(self) -> None:
        await self.name_known()
        self.jobs = self.batch()

    def batch(self) -> list[NewJob]:
        return [self.new() for _ in range(5)]

    async def call(self) -> Sequence[Enqueued]:
        return await self.driver.enqueue_many(self.jobs)

    async def check(self, answer: Sequence[Enqueued]) -> None:
        assert [one.id for one in answer] == [job.id for job in self.jobs]
        self.acked |= ids_of(self.jobs)


class EnqueueRepeated(EnqueueMany):
    """The reply of an earlier call was lost: this is the repetition, and it is cut as well."""

    name = "enqueue_many of a batch that is half there"

    async def arrange(self) -> None:
        await super().arrange()
        await self.straight.enqueue(self.jobs[0])

    async def check(self, answer: Sequence[Enqueued]) -> None:
        await super().check(answer)
        assert not any(one.deduped for one in answer)


class EnqueueManyKeyed(EnqueueMany):
    """One key stands twice in the batch: the second comes to the first."""

    name = "enqueue_many with keys"

    def batch(self) -> list[NewJob]:
        return [self.new(key="a"), self.new(), self.new(key="b"), self.new(key="a")]

    async def check(self, answer: Sequence[Enqueued]) -> None:
        first, second, third, _ = (job.id for job in self.jobs)
        assert [one.id for one in answer] == [first, second, third, first]
        self.acked |= {first, second, third}


class EnqueueTogether(EnqueueMany):
    """Callers that share a statement, one of whom comes to a job that is there."""

    name = "enqueue of several callers at once"

    def batch(self) -> list[NewJob]:
        return [self.new(), self.new(key="held"), self.new(key="free")]

    async def arrange(self) -> None:
        await super().arrange()
        self.holder = await self.enqueued(key="held")

    async def call(self) -> Sequence[Enqueued]:
        answers = await asyncio.gather(*map(self.driver.enqueue, self.jobs), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [answer for answer in answers if isinstance(answer, Enqueued)]

    async def check(self, answer: Sequence[Enqueued]) -> None:
        plain, _, free = (job.id for job in self.jobs)
        assert [one.id for one in answer] == [plain, self.holder, free]
        assert [one.deduped for one in answer] == [False, True, False]
        self.acked |= {plain, free}


OPERATIONS: tuple[type[Operation], ...] = (
    Enqueue,
    EnqueueKeyed,
    EnqueueWindow,
    EnqueueDelayed,
    EnqueueLimited,
    EnqueueSource,
    EnqueueSourceToHolder,
    EnqueueFirstOfName,
    EnqueueByAnotherId,
    EnqueueMany,
    EnqueueRepeated,
    EnqueueManyKeyed,
    EnqueueTogether,
)
