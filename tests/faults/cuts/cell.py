"""One cell of the matrix: an operation whose connection is cut around one of its statements, and what comes of it.

The cut is made, the way is mended, and the operation's caller does what it does after such an error. Then nothing is
lost, nothing is there twice, no claim is stranded, every move was legal and every counter adds up.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

from app.domain.errors import DriverUnavailable
from app.domain.job import ClaimedJob, ClaimToken, JobId, NewJob, WorkerId
from app.drivers.protocol import ClaimRequest, QueueShare
from app.steps.repeat import until_known
from tests.faults.cuts.bench import Bench
from tests.support.blade import Cut, Limit
from tests.support.drivers import NAME, QUEUE, new_job, new_worker

_PATIENCE_SECONDS = 20.0


class Operation(ABC):
    """What is cut. One instance plays one cell: `arrange`, the `call` that is cut, `again`, `check`."""

    name: ClassVar[str]
    errors: ClassVar[tuple[type[Exception], ...]] = (DriverUnavailable,)
    parked = 0  # jobs that stay where they are, with a reason

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.straight = bench.straight.driver
        self.driver = bench.driver
        self.acked: set[JobId] = set()
        self.held: set[ClaimToken] = set()  # what its worker knows that it holds
        self.is_stored = False  # whether the call that was cut has changed anything
        self.is_cut = False
        self.is_repeated = False  # whether its caller was told of the cut, and did it again
        self.stack = AsyncExitStack()

    @abstractmethod
    async def arrange(self) -> None:
        """Bring about what the operation needs."""

    @abstractmethod
    async def call(self) -> Any:
        """Do it past the blade."""

    async def again(self) -> Any:
        """Do what its caller does after an error: as a rule the same once more."""
        return await self.call()

    @abstractmethod
    async def check(self, answer: Any) -> None:
        """Hold the last answer, and what is stored, to what the operation promises."""

    # --- sentences --------------------------------------------------------------------------------------------------

    def new(self, **fields: Any) -> NewJob:
        """Give a new job."""
        return new_job(fields.pop("name", NAME), **fields)

    async def name_known(self, name: str = NAME) -> None:
        """Have the product know a job type's number, as it does after its first job of that name."""
        first = self.new(name=name)
        self.acked.add((await self.driver.enqueue(first)).id)

    async def enqueued(self, **fields: Any) -> JobId:
        """Enqueue a job, straight."""
        job = self.new(**fields)
        answer = await self.straight.enqueue(job)
        self.acked.add(answer.id)
        return answer.id

    async def registered(self, **fields: Any) -> WorkerId:
        """Register a worker, straight."""
        return await self.straight.register_worker(new_worker(**fields))

    async def claimed(self, worker: WorkerId, room: int = 1) -> list[ClaimedJob]:
        """Claim, straight, exactly so many jobs."""
        jobs = await self.straight.claim(asked_by(worker, room=room))
        assert len(jobs) == room
        self.held |= {job.token for job in jobs}
        return list(jobs)

    async def started(self, worker: WorkerId | None = None, **fields: Any) -> ClaimedJob:
        """Enqueue a job and claim it, straight."""
        job_id = await self.enqueued(**fields)
        (job,) = await self.claimed(worker if worker is not None else await self.registered())
        assert job.token.job_id == job_id
        return job

    @property
    def is_second(self) -> bool:
        """Say whether the answer is of a call that may have found done what an earlier one did."""
        return self.is_repeated and self.is_stored

    async def fetch(self, sql: str, *args: object) -> list[Any]:
        """Run a statement of the test's own, straight."""
        return await self.bench.straight.fetch(sql, *args)

    async def count(self, table: str, where: str = "true", *args: object) -> int:
        """Count rows."""
        return int((await self.fetch(f"select count(*) as n from outlast.{table} where {where}", *args))[0]["n"])


def asked_by(worker: WorkerId, *, room: int = 10, queues: Sequence[str] = (QUEUE,)) -> ClaimRequest:
    """Ask for up to `room` jobs."""
    shares = tuple(QueueShare(queue=queue, room=room) for queue in queues)
    return ClaimRequest(worker_id=worker, shares=shares, names=frozenset({NAME}), room=room)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell that held. `stored`: the call that was cut has changed something. `heard`: what its caller was told."""

    operation: str
    at: int
    of: int
    sql: str
    cut: Cut | Limit
    proof: str
    stored: bool
    heard: str


async def statements_of(bench: Bench, kind: type[Operation]) -> list[str]:
    """Play an operation without a cut; gives its statements. What is true after a cut must be true without one."""
    operation = kind(bench)
    bench.forget()
    async with operation.stack:
        await operation.arrange()
        await bench.warm()
        before = await bench.fingerprint()
        bench.blade.arm()
        answer = await operation.call()
        bench.blade.heal()
        operation.is_stored = await bench.fingerprint() != before
        assert operation.is_stored, f"{kind.name} changes nothing"
        await _held_to_the_rules(operation, answer)
    return bench.blade.statements


async def play(bench: Bench, kind: type[Operation], at: int, cut: Cut | Limit, statements: Sequence[str]) -> Cell:
    """Play one cell; fails where a rule is broken, and where the cut was never made."""
    operation = kind(bench)
    operation.is_cut = True
    bench.forget()
    async with operation.stack:
        await operation.arrange()
        await bench.warm()
        before = await bench.fingerprint()
        bench.blade.arm(at, cut)
        answer, error = None, None
        try:
            answer = await operation.call()
        except kind.errors as caught:
            error = caught
        assert bench.blade.fault is None, repr(bench.blade.fault)
        assert _plain(bench.blade.hit) == _plain(statements[at]), f"not the statement to be cut: {bench.blade.hit}"
        assert bench.blade.said, "the cut was not made"
        bench.blade.heal()
        await bench.until_let_go()
        operation.is_stored = await bench.fingerprint() != before
        if error is not None:
            operation.is_repeated = True
            answer = await until_known(operation.again, patience_seconds=_PATIENCE_SECONDS)
        await _held_to_the_rules(operation, answer)
    return Cell(
        operation=kind.name,
        at=at,
        of=len(statements),
        sql=" ".join(statements[at].split())[:60],
        cut=cut,
        proof=bench.blade.said,
        stored=operation.is_stored,
        heard="its answer" if error is None else type(error).__name__,
    )


def _plain(sql: str | None) -> str:
    """Give a statement without the number that asyncpg puts into the name of a savepoint."""
    return re.sub(r"__asyncpg_savepoint_\w+?__", "a_savepoint", sql or "")


async def _held_to_the_rules(operation: Operation, answer: Any) -> None:
    bench = operation.bench
    await operation.check(answer)
    running = await bench.running()
    assert running == operation.held, f"held: {operation.held}, by the store: {running}"
    await bench.work_off(operation.held, parked=operation.parked)
    await bench.check(acked=operation.acked)
    await bench.empty()


def ids_of(jobs: Sequence[NewJob]) -> set[JobId]:
    """Give the ids of jobs."""
    return {job.id for job in jobs}
