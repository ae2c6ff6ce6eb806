"""Operations of a request that carries a key of its own; whoever sends it repeats it with the same ids."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from app.domain.request_claim import KeptAnswer, NewRequest, RequestClaim, RequestId
from tests.conformance.runs import new_event
from tests.faults.cuts.cell import Operation

_ANSWER = KeptAnswer(status=201, headers={}, body="{}")


class Requested(Operation):
    """A request that is claimed already, straight."""

    async def arrange(self) -> None:
        self.request = NewRequest(id=RequestId(uuid4()), holder=uuid4(), fingerprint=uuid4())
        await self.name_known()
        claim = await self.straight.claim_request(self.request)
        assert isinstance(claim, RequestClaim)
        self.claim = claim

    async def found(self) -> Any:
        """Claim it again, straight."""
        return await self.straight.claim_request(self.request)


class ClaimRequest(Requested):
    name = "claim_request"

    async def arrange(self) -> None:
        self.request = NewRequest(id=RequestId(uuid4()), holder=uuid4(), fingerprint=uuid4())

    async def call(self) -> Any:
        return await self.driver.claim_request(self.request)

    async def check(self, answer: Any) -> None:
        assert answer == RequestClaim(id=self.request.id, holder=self.request.holder)
        assert await self.count("request") == 1


class EnqueueOnce(Requested):
    name = "enqueue_once"

    async def arrange(self) -> None:
        await super().arrange()
        self.jobs = (self.new(key="order:1"), self.new())

    async def call(self) -> Any:
        return await self.driver.enqueue_once(self.jobs, self.claim)

    async def check(self, answer: Any) -> None:
        assert [each.id for each in answer] == [job.id for job in self.jobs]
        self.acked |= {job.id for job in self.jobs}
        assert (await self.found()).effect is not None


class EmitOnce(Requested):
    name = "emit_once"

    async def arrange(self) -> None:
        await super().arrange()
        self.event = new_event()

    async def call(self) -> Any:
        return await self.driver.emit_once(self.event, self.claim)

    async def check(self, answer: Any) -> None:
        assert answer.id == self.event.id
        assert (await self.found()).effect.target == str(self.event.id)
        assert await self.count("event") == 1


class AnswerRequest(Requested):
    name = "answer_request"

    async def call(self) -> Any:
        await self.driver.answer_request(self.claim, _ANSWER)

    async def check(self, answer: Any) -> None:
        assert await self.found() == _ANSWER


class ReleaseRequest(Requested):
    name = "release_request"

    async def call(self) -> Any:
        await self.driver.release_request(self.claim)

    async def check(self, answer: Any) -> None:
        assert await self.count("request") == 0


OPERATIONS: tuple[type[Operation], ...] = (ClaimRequest, EnqueueOnce, EmitOnce, AnswerRequest, ReleaseRequest)
