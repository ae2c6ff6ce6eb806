"""Operations of limits: admitting, giving slots back in three ways, and what operators do."""

from __future__ import annotations

from typing import Any, cast

import pytest

from app.domain.errors import NotFound
from app.domain.job import ClaimedJob, ClaimToken, WorkerId
from app.domain.limit import VERSION_KEPT, Admitted
from tests.conformance.gated import ALL, declare
from tests.faults.cuts.cell import Operation, asked_by
from tests.support.drivers import NAME, new_id

_N = 3
_OLDER = "0.9"


class Admit(Operation):
    """Once its reply was lost, jobs and slots are handed back before the next look."""

    name = "admit"

    async def arrange(self) -> None:
        self.worker = await self.registered()
        await declare(cast("Any", self.bench.straight), _N)
        await self.jobs(1)
        (first,) = await self.admitted()
        await self.straight.release([first.token], cause="drain")
        await self.straight.free_slots([first.token])
        self.held.clear()
        await self.driver.admit(asked_by(self.worker, queues=("nothing",)))  # the name's number is known from now on
        await self.prepare()

    async def prepare(self) -> None:
        """Bring about what is done with slots."""
        await self.jobs(_N - 1)

    async def jobs(self, count: int) -> None:
        """Enqueue limited jobs, straight."""
        for _ in range(count):
            await self.enqueued(limits=(ALL,))

    async def admitted(self) -> list[ClaimedJob]:
        """Admit what there is, straight."""
        jobs = list((await self.straight.admit(asked_by(self.worker))).jobs)
        self.held |= {job.token for job in jobs}
        return jobs

    async def call(self) -> Any:
        return await self.driver.admit(asked_by(self.worker))

    async def again(self) -> Any:
        now = await self.driver.database_time()
        assert await self.driver.reconcile(self.worker, [], before=now) == (_N if self.is_stored else 0)
        assert await self.driver.return_slots(self.worker, [], before=now) == (_N if self.is_stored else 0)
        return await self.call()

    async def check(self, answer: Any) -> None:
        assert isinstance(answer, Admitted)
        self.held = {job.token for job in answer.jobs}
        assert len(answer.jobs) == _N == await self.count("slot")
        assert await self.count("gate") == 0


class AdmitFirst(Admit):
    """By a key that nobody has used: it is made before the transaction, and stays whatever becomes of that."""

    name = "admit by a new key"

    async def arrange(self) -> None:
        self.worker = await self.registered()
        await declare(cast("Any", self.bench.straight), _N)
        await self.driver.admit(asked_by(self.worker, queues=("nothing",)))
        await self.jobs(_N)

    async def again(self) -> Any:
        now = await self.driver.database_time()
        back = await self.driver.reconcile(self.worker, [], before=now)
        assert await self.driver.return_slots(self.worker, [], before=now) == back
        assert back in {0, _N}
        return await self.call()


class Free(Admit):
    """Whoever gives a slot back does so again until it is known."""

    name = "free_slots"

    async def prepare(self) -> None:
        await self.jobs(2 * _N - 1)
        self.mine = [job.token for job in await self.admitted()]
        self.next = 2 * _N

    async def call(self) -> Any:
        return await self.driver.free_slots(self.mine)

    async def again(self) -> Any:
        return await self.call()

    async def check(self, answer: Any) -> None:
        assert answer == (0 if self.is_second else _N)
        assert await self.count("slot") == 0
        await self.straight.release(self.mine, cause="drain")
        self.held.clear()
        assert len(await self.admitted()) == _N
        left = await self.straight.admit(asked_by(self.worker))
        assert left.jobs == ()

    parked = _N


class Return(Free):
    name = "return_slots"

    async def call(self) -> Any:
        held: list[ClaimToken] = []
        return await self.driver.return_slots(self.worker, held, before=await self.straight.database_time())


class Sweep(Free):
    """Its worker is gone, and another's sweep finds the slots."""

    name = "sweep_slots"

    async def prepare(self) -> None:
        await super().prepare()
        await self.straight.surrender(self.worker)
        self.held.clear()

    async def call(self) -> Any:
        return await self.driver.sweep_slots()

    async def check(self, answer: Any) -> None:
        assert answer == (0 if self.is_second else _N)
        assert await self.count("slot") == 0
        self.worker = await self.registered()
        assert len(await self.admitted()) == _N


class ReleaseSlots(Admit):
    """An operator whose first call was stored finds that nothing is held any more."""

    name = "release_slots"

    async def prepare(self) -> None:
        (job,) = await self.admitted()
        self.job_id = job.token.job_id
        await self.straight.cancel(self.job_id, reason="changed their mind")
        self.held.clear()

    async def call(self) -> Any:
        return await self.driver.release_slots(self.job_id)

    async def again(self) -> Any:
        if not self.is_stored:
            return await self.call()
        with pytest.raises(NotFound):
            await self.call()
        return None

    async def check(self, answer: Any) -> None:
        assert await self.count("slot") == 0


class SetLimit(Admit):
    name = "set_limit"

    async def prepare(self) -> None:
        await self.jobs(2 * _N - 1)
        await self.admitted()
        await self.straight.admit(asked_by(self.worker))  # who is left is parked

    async def call(self) -> Any:
        return await self.driver.set_limit(NAME, ALL.limit, 2 * _N, by="an operator")

    async def again(self) -> Any:
        return await self.call()

    async def check(self, answer: Any) -> None:
        assert (answer.n, answer.set_by) == (2 * _N, "an operator")
        assert len(await self.admitted()) == _N


class Declare(SetLimit):
    """A newer version allows more."""

    name = "publish_job_types with limits"

    async def call(self) -> Any:
        env: Any = self.bench.straight
        through, env.driver = env.driver, self.driver
        try:
            await declare(env, 2 * _N, version=str(new_id()))  # whose names nobody has heard of
        finally:
            env.driver = through

    async def check(self, answer: Any) -> None:
        assert len(await self.admitted()) == _N


class ChooseAnew(SetLimit):
    """The version whose number is in force has gone, and the one that still has workers allows more.

    The next sweep comes only where a look says that there is something to do.
    """

    name = "sweep_slots that chooses a version"

    async def registered(self, **fields: Any) -> WorkerId:
        return await super().registered(code_version=_OLDER, **fields)

    async def arrange(self) -> None:
        await declare(cast("Any", self.bench.straight), 2 * _N, version=_OLDER)
        await super().arrange()

    async def prepare(self) -> None:
        await super().prepare()
        await self.fetch(
            "update outlast.limit_version set shown_at = shown_at - $1::interval where code_version <> $2",
            2 * VERSION_KEPT,
            _OLDER,
        )

    async def call(self) -> Any:
        return await self.driver.sweep_slots()

    async def again(self) -> Any:
        return await self.call() if (await self.driver.due()).must_free else 0

    async def check(self, answer: Any) -> None:
        assert answer == 0
        assert not (await self.straight.due()).must_free
        assert [each.n for each in await self.straight.stored_limits(NAME)] == [2 * _N]
        assert len(await self.admitted()) == _N


SLOTS = (Admit, AdmitFirst, Free, Return, Sweep)
NUMBERS = (ReleaseSlots, SetLimit, Declare, ChooseAnew)
