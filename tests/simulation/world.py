"""A world: one store, a fleet that changes, jobs that are asked for, and the trouble its plan has for them.

It runs until its trouble is over and every job has come to its end, then tells the fleet to leave. What happened is in
its history; whether it was right is for `checks`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from app.domain.errors import OutlastError
from app.domain.event import EventId, NewEvent
from app.domain.job import DEFAULT_TENANT, JobId, NewJob
from app.domain.state import RETRYABLE, TERMINAL
from app.drivers.memory.rows import state_of
from app.jobs.registry import AnyHandle, Registry
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from tests.simulation.bodies import HANDLES, NEWS
from tests.simulation.link import Link, Odds, Weather, at_once
from tests.simulation.loop import Machine, Stuck, VirtualLoop
from tests.simulation.machine import Process
from tests.simulation.plan import QUEUES, Act, DeedPlan, JobPlan, Plan, plan_of
from tests.simulation.record import Asked, AuditedDriver, Fate, History, WorldClock

_START = datetime(2030, 1, 1, tzinfo=UTC)
_REST_LEASES = 60.0  # longer than any world needs to come to rest
_LOOK_SECONDS = 0.1
_FINISH = Act(way="finish", seconds=0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A world that has ended: what was planned, what happened, and the store as it stands."""

    plan: Plan
    history: History
    driver: AuditedDriver
    noise: tuple[str, ...]
    left: tuple[str, ...]
    key_of: dict[str, str]
    source_of: dict[str, str]


class Silent(Registry):
    """A registry that publishes nothing: the schemas of its job types would take longer than a world."""

    def __init__(self, handles: Iterable[AnyHandle], *, is_limited: bool) -> None:
        super().__init__(handles)
        self._is_limited = is_limited

    @property
    def has_limits(self) -> bool:
        return self._is_limited

    def __iter__(self) -> Iterator[AnyHandle]:
        return iter(())


class SimulatedWorld:
    """The world of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.loop = VirtualLoop(Random(f"{plan.seed} order"))
        self.history = History(self.loop.time)
        self.registry: Registry = Silent(HANDLES, is_limited=plan.limits is not None)
        self.driver = AuditedDriver(WorldClock(_START, self.loop.time), self.history)
        self._dice = Random(f"{plan.seed} world")
        self._weather = Weather(odds=plan.odds, patience_seconds=plan.patience)
        self._processes: list[Process] = []
        self._metrics = Metrics()
        self._plans: dict[JobId, JobPlan] = {}
        self._starts: Counter[JobId] = Counter()
        self._asking = 0
        self._is_ending = False
        self.key_of: dict[str, str] = {}
        self.source_of: dict[str, str] = {}

    def run(self) -> Outcome:
        """Run it to its end."""
        left: tuple[str, ...] = ()
        try:
            self.loop.run_until_complete(self._live())
        except Stuck as stuck:
            left = (str(stuck), *self._unfinished())
        finally:
            noise = (*self.loop.noise, *self._failures())
            self.loop.end()
        return Outcome(
            plan=self.plan,
            history=self.history,
            driver=self.driver,
            noise=noise,
            left=left,
            key_of=self.key_of,
            source_of=self.source_of,
        )

    # --- what processes ask of it -------------------------------------------------------------------------------------

    def act_of(self, job_id: JobId) -> Act:
        script = self._plans[job_id].script
        number = self._starts[job_id]
        self._starts[job_id] += 1
        return script[number] if number < len(script) else _FINISH

    def gone(self, process: Process) -> None:
        if not self._is_ending:
            Context().run(self.loop.call_later, self._dice.random() * self.plan.lease, self._replace)

    # --- its course ---------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        plan = self.plan
        self._declare()
        for _ in range(plan.fleet):
            self._start(is_embedded=self._dice.random() < plan.embedded)
        for job in plan.jobs:
            self.loop.call_at(job.at, self._ask_soon, job)
            if job.news_at is not None:
                self.loop.call_at(job.news_at, self._emit, job)
        for deed in plan.deeds:
            self.loop.call_at(deed.at, self._do, deed)
        await asyncio.sleep(plan.horizon)
        await self._heal()
        await self._until(lambda: not self._unfinished(), leases=_REST_LEASES)
        self._is_ending = True
        for process in self._processes:
            if not process.is_over:
                process.tell("SIGTERM")
        await self._until(lambda: all(process.is_over for process in self._processes), leases=_REST_LEASES)

    def _declare(self) -> None:
        """Let limits be in force, and an operator change them."""
        limits, names = self.plan.limits, [handle.job_type.name for handle in HANDLES]
        if limits is None:
            return
        at_once(self.driver.publish_job_types(limits.documents(names)))
        for at, n in limits.changes:
            for name in names:
                self.loop.call_at(at, lambda *args: at_once(self.driver.set_limit(*args, by="ann")), name, "limit", n)

    async def _heal(self) -> None:
        """Let everything that can go wrong be over, and one process more be there."""
        self.history.add(Fate, machine="world", what="heals")
        self._weather.odds = Odds()
        self._weather.away_until = 0.0
        for process in self._processes:
            process.link.cut_until = 0.0
        for queue in QUEUES:
            await self.driver.resume_queue(queue)
        self._start(is_embedded=False)

    async def _until(self, is_true: Callable[[], bool], *, leases: float) -> None:
        until = self.loop.time() + leases * self.plan.lease
        while not is_true():
            if self.loop.time() > until:
                raise Stuck(f"no rest within {leases:g} leases")
            await asyncio.sleep(_LOOK_SECONDS)

    def _unfinished(self) -> tuple[str, ...]:
        live = tuple(
            f"{self.history.name(job_id)}: {token}"
            for job_id, token in self.driver.store.tokens.items()
            if state_of(token) not in TERMINAL
        )
        return (*live, *("still asking" for _ in range(self._asking)))

    def _failures(self) -> tuple[str, ...]:
        """Say which processes an error has ended on their way: they say nothing any more, and never exit."""
        machines = (process.machine for process in self._processes)
        return tuple(f"{one.name} ended by {one.failure!r}" for one in machines if one.failure is not None)

    # --- the fleet ----------------------------------------------------------------------------------------------------

    def _start(self, *, is_embedded: bool) -> None:
        process = Process(self, f"p{len(self._processes)}", self._link, Telemetry(metrics=self._metrics))
        self._processes.append(process)
        process.start(is_embedded=is_embedded)

    def _replace(self) -> None:
        if not self._is_ending:
            self._start(is_embedded=self._dice.random() < self.plan.embedded)

    def _link(self, machine: Machine) -> Link:
        return Link(
            self.driver,
            loop=self.loop,
            machine=machine,
            weather=self._weather,
            history=self.history,
            dice=Random(f"{self.plan.seed} line of {machine.name}"),
        )

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def _emit(self, job: JobPlan) -> None:
        """Say to a run, once or twice, what it waits for; it may not have come so far, or be over."""
        for job_id, known in list(self._plans.items()):
            if known is job:
                event = NewEvent(
                    id=EventId(self._uuid()), tenant=DEFAULT_TENANT, name=NEWS, key=str(job_id), payload="1"
                )
                at_once(self.driver.emit(event))

    def _ask_soon(self, job: JobPlan) -> None:
        self._asking += 1
        machine = Machine(self.loop, f"caller{len(self._plans)}")
        machine.run(self._ask(job, self._link(machine)), name="ask")

    async def _ask(self, job: JobPlan, link: Link) -> None:
        """Ask until there is an answer: under one id, or as a publisher does, under a new one with the same source."""
        source = self._uuid() if job.publisher else None
        job_id = self._uuid()
        while True:
            name = self._know(JobId(job_id), job, source)
            self.history.add(Asked, verb="enqueue", job=name, answer=None)
            try:
                answer = await link.enqueue(_request(JobId(job_id), job, source))
            except OutlastError:
                await asyncio.sleep(self._dice.random() * 0.2)
                job_id = self._uuid() if job.publisher else job_id
                continue
            self.history.add(Asked, verb="enqueue", job=name, answer=self.history.name(answer.id))
            self._asking -= 1
            return

    def _know(self, job_id: JobId, job: JobPlan, source: UUID | None) -> str:
        name = self.history.name(job_id)
        self._plans[job_id] = job
        if job.key is not None:
            self.key_of[name] = f"{job.kind} {job.key}"
        if source is not None:
            self.source_of[name] = str(source)
        return name

    def _uuid(self) -> UUID:
        return UUID(int=self._dice.getrandbits(128), version=4)

    # --- trouble ------------------------------------------------------------------------------------------------------

    def _do(self, deed: DeedPlan) -> None:
        match deed.what:
            case "away":
                self.history.add(Fate, machine="world", what="the store is away", seconds=round(deed.seconds, 6))
                self._weather.away_until = self.loop.time() + deed.seconds
            case "cancel":
                self._cancel(deed.lot)
            case "retry":
                self._retry(deed.lot)
            case "pause":
                queue = QUEUES[int(deed.lot * len(QUEUES))]
                at_once(self.driver.pause_queue(queue, by="operator"))
                self.loop.call_later(deed.seconds, lambda: at_once(self.driver.resume_queue(queue)))
            case _:
                self._do_to_one(deed)

    def _do_to_one(self, deed: DeedPlan) -> None:
        alive = [process for process in self._processes if not (process.is_over or process.machine.is_frozen)]
        if not alive:
            return
        process = alive[int(deed.lot * len(alive))]
        match deed.what:
            case "kill":
                process.kill()
            case "freeze":
                process.freeze(deed.seconds)
            case "sleep":
                process.sleep(deed.seconds)
            case "jump":
                process.jump(deed.seconds)
            case "drain":
                process.tell("SIGTERM")
            case "hurry":
                process.hurry(min(deed.seconds, self.plan.drain))
            case _:
                self.history.add(Fate, machine=process.name, what="is cut off", seconds=round(deed.seconds, 6))
                process.link.cut_until = self.loop.time() + deed.seconds

    def _cancel(self, lot: float) -> None:
        if known := list(self.driver.store.tokens):
            at_once(self.driver.cancel(known[int(lot * len(known))], reason="operator"))

    def _retry(self, lot: float) -> None:
        tokens = self.driver.store.tokens.items()
        if known := [job_id for job_id, token in tokens if state_of(token) in RETRYABLE]:
            try:
                at_once(self.driver.retry(known[int(lot * len(known))]))
            except OutlastError:
                return  # its key is taken


def _request(job_id: JobId, job: JobPlan, source: UUID | None) -> NewJob:
    def span(seconds: float | None) -> timedelta | None:
        return None if seconds is None else timedelta(seconds=seconds)

    return NewJob(
        id=job_id,
        name=job.kind,
        payload="{}",
        queue=job.queue,
        priority=job.priority,
        max_attempts=job.max_attempts,
        max_crashes=job.max_crashes,
        key=job.key,
        source_id=source,
        limits=job.limits,
        delay=span(job.delay),
        timeout=span(job.timeout),
        deadline=span(job.deadline),
        max_queue_time=span(job.max_queue_time),
    )


def simulate(seed: int) -> Outcome:
    """Run the world of a seed."""
    return SimulatedWorld(plan_of(seed)).run()
