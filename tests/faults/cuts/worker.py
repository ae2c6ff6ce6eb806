"""Operations of a worker: how it is known to the store, its lease, what it claims and hands back, how it leaves."""

from __future__ import annotations

from typing import Any, ClassVar

from app.domain.drain import DrainAsk, DrainShown
from app.domain.job import ClaimedJob
from app.domain.outcome import OutcomeKind
from app.domain.snapshot import JobTypeDoc
from tests.faults.cuts.cell import Operation, asked_by
from tests.support.drivers import new_id, new_worker


class Register(Operation):
    name = "register_worker"

    async def arrange(self) -> None:
        self.new_one = new_worker()

    async def call(self) -> Any:
        return await self.driver.register_worker(self.new_one)

    async def check(self, answer: Any) -> None:
        rows = await self.fetch("select id from outlast.worker where boot_id = $1", self.new_one.boot_id)
        assert [row["id"] for row in rows] == [answer]
        assert await self.count("worker") == self.workers

    workers = 1


class RegisterAnew(Register):
    """The process had a lease and lost it: its old row gives its boot id up."""

    name = "register_worker after a lost lease"
    workers = 2

    async def arrange(self) -> None:
        await super().arrange()
        await self.straight.register_worker(self.new_one)
        await self.fetch("update outlast.worker set lost_at = outlast.clock()")


class PublishTypes(Operation):
    """Their names at a version that nobody has heard of are made, too."""

    name = "publish_job_types"

    async def arrange(self) -> None:
        self.version = str(new_id())
        self.docs = [JobTypeDoc(name=f"demo.{number}", code_version=self.version, document="{}") for number in range(3)]

    async def call(self) -> Any:
        await self.driver.publish_job_types(self.docs)

    async def check(self, answer: Any) -> None:
        assert [doc.name for doc in await self.straight.job_types()] == [doc.name for doc in self.docs]
        assert await self.count("job_name", "name like '%@' || $1", self.version) == 3


class Show(Operation):
    name = "show_worker"

    async def arrange(self) -> None:
        self.worker = await self.registered()

    async def call(self) -> Any:
        await self.driver.show_worker(self.worker, wakeup="listen", drain=DrainShown(phase="accept"))

    async def check(self, answer: Any) -> None:
        (view,) = await self.straight.workers()
        assert (view.wakeup, view.drain_phase) == ("listen", "accept")


class AskDrain(Show):
    name = "ask_drain"

    async def call(self) -> Any:
        return await self.driver.ask_drain(self.worker, by="an operator")

    async def check(self, answer: Any) -> None:
        assert answer is DrainAsk.ASKED
        (view,) = await self.straight.workers()
        assert view.drain_asked_by == "an operator"


class Close(Show):
    """A claim it still had goes back with the next reap, uncounted."""

    name = "close_worker"

    async def arrange(self) -> None:
        await super().arrange()
        self.job = await self.started(self.worker)

    async def call(self) -> Any:
        await self.driver.close_worker(self.worker)

    async def check(self, answer: Any) -> None:
        (reaped,) = await self.straight.reap()
        assert reaped.outcome is OutcomeKind.INTERRUPTED
        self.held.clear()
        assert [row.outcome for row in await self.straight.attempts(self.job.token.job_id)] == [OutcomeKind.INTERRUPTED]


class Surrender(Close):
    name = "surrender"

    async def call(self) -> Any:
        return await self.driver.surrender(self.worker)

    async def check(self, answer: Any) -> None:
        assert len(answer) == (0 if self.is_cut and self.is_stored else 1)
        self.held.clear()
        assert [row.outcome for row in await self.straight.attempts(self.job.token.job_id)] == [OutcomeKind.LEASE_LOST]


# --- claims -----------------------------------------------------------------------------------------------------------


class Claim(Operation):
    """Once its reply was lost, what came is handed back before the next claim: uncounted, its number used up."""

    name = "claim"
    queues: ClassVar[tuple[str, ...]] = ("default",)

    async def arrange(self) -> None:
        self.worker = await self.registered()
        for number in range(3):
            await self.enqueued(queue=self.queues[number % len(self.queues)])
        await self.driver.claim(asked_by(self.worker, queues=("nothing",)))  # the name's number is known from now on

    async def call(self) -> tuple[ClaimedJob, ...]:
        return await self.driver.claim(asked_by(self.worker, queues=self.queues))

    async def again(self) -> tuple[ClaimedJob, ...]:
        now = await self.driver.database_time()
        count = await self.driver.reconcile(self.worker, [], before=now)
        assert count == self.stranded()
        return await self.call()

    def stranded(self) -> int:
        """Give how many claims a lost reply was about."""
        return 3 if self.is_stored else 0

    async def check(self, answer: tuple[ClaimedJob, ...]) -> None:
        lost = 1 if self.is_cut and self.is_stored else 0
        assert [(job.token.claim_no, job.counters.attempt) for job in answer] == [(1 + lost, 1)] * 3
        self.held = {job.token for job in answer}


class ClaimQueues(Claim):
    name = "claim of several queues"
    queues = ("default", "other")


class ClaimBare(Claim):
    """Somebody deleted a job's envelope by hand: its token is put aside, in a statement of its own."""

    name = "claim beside a token without an envelope"

    async def arrange(self) -> None:
        await super().arrange()
        bare = await self.enqueued()
        await self.fetch("delete from outlast.job where id = $1", bare)
        self.acked.remove(bare)

    async def again(self) -> tuple[ClaimedJob, ...]:
        self.lost = len(await self.bench.running())
        return await super().again()

    def stranded(self) -> int:
        assert self.lost in {0, 3, 4}
        return self.lost

    async def check(self, answer: tuple[ClaimedJob, ...]) -> None:
        await super().check(answer)
        assert await self.count("held", "reason = 'no envelope'") == 1


class Running(Operation):
    """A worker with two claims."""

    async def arrange(self) -> None:
        self.worker = await self.registered()
        for _ in range(2):
            await self.enqueued(max_crashes=1)
        self.jobs = await self.claimed(self.worker, room=2)
        self.tokens = [job.token for job in self.jobs]

    async def check_handed_back(self, job: ClaimedJob) -> None:
        """Hold that a claim went back as if it had never been, and was made again by the test's own worker."""
        view = await self.straight.describe(job.token.job_id)
        assert view is not None
        assert view.counters == (0, 1, 0, 0)
        assert await self.straight.attempts(job.token.job_id) == ()


class Release(Running):
    name = "release"

    async def call(self) -> Any:
        return await self.driver.release(self.tokens, cause="drain")

    async def check(self, answer: Any) -> None:
        assert answer == (0 if self.is_cut and self.is_stored else 2)
        self.held.clear()
        for job in self.jobs:
            await self.check_handed_back(job)


class Reconcile(Running):
    """One of its claims it does not know of."""

    name = "reconcile"

    async def call(self) -> Any:
        now = await self.driver.database_time()
        return await self.driver.reconcile(self.worker, self.tokens[:1], before=now)

    async def check(self, answer: Any) -> None:
        assert answer == (0 if self.is_cut and self.is_stored else 1)
        self.held = set(self.tokens[:1])
        await self.check_handed_back(self.jobs[1])


class Isolate(Running):
    name = "isolate"

    async def call(self) -> Any:
        return await self.driver.isolate(self.tokens[0])

    async def check(self, answer: Any) -> None:
        assert answer is True
        assert await self.count("running", "alone") == 1


OPERATIONS: tuple[type[Operation], ...] = (
    Register,
    RegisterAnew,
    PublishTypes,
    Show,
    AskDrain,
    Close,
    Surrender,
    Claim,
    ClaimQueues,
    ClaimBare,
    Release,
    Reconcile,
    Isolate,
)
