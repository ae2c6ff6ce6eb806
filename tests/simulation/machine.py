"""A simulated process: the worker as the composition root makes it, over its own line, clocks and chance.

Most are processes like those of the command line, which leave by one `Shutdown`. Some are programs that embed a worker
and start and stop it again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Protocol, cast

from app.domain.errors import OutlastError
from app.domain.job import JobId
from app.drivers.protocol import JobDriver
from app.jobs import JobContext
from app.jobs.client import Client
from app.jobs.registry import Registry
from app.lifecycle.drain import DrainNotice
from app.lifecycle.role import Phase
from app.lifecycle.shutdown import Shutdown
from app.observability.telemetry import Telemetry
from app.worker.beside import Main, OnEnd
from app.worker.worker import Worker
from tests.simulation.bodies import STAGE
from tests.simulation.link import Link
from tests.simulation.loop import Machine, VirtualLoop
from tests.simulation.plan import Act, Plan
from tests.simulation.record import Body, Fate, History, Said

START_FAILED = 69
UNHEARD = 143  # told before it could hear
_LIVES = 4  # of an embedded worker
_TOLD = {
    "worker.started": "worker_id",
    "worker.drain_abandoned": "job_id",
    "worker.lease_over": "worker_id",
    "attempt.abandoned": "job_id",
    "claim.reconciled": "count",
    "role.failed": "error",
    "process.ended": "why",
    "settle.left": "job_id",
    "settle.refused": "job_id",
    "claim.held_back": "job_id",
    "cancel.refused": "task",
}


class World(Protocol):
    """What a process needs of its world."""

    loop: VirtualLoop
    plan: Plan
    history: History
    registry: Registry

    def act_of(self, job_id: JobId) -> Act:
        """Give what the next start of a job does."""
        ...

    def gone(self, process: Process) -> None:
        """Hear that a process is over."""
        ...


class OnLoop:
    """The heartbeat's thread as a task of the same machine."""

    def start(self, main: Main, on_end: OnEnd) -> None:
        task = asyncio.ensure_future(self._run(main))
        task.add_done_callback(lambda done: on_end(done.exception()))

    async def _run(self, main: Main) -> None:
        await main()

    def join(self) -> None:
        """It leaves nothing."""


class Process:
    """One process of a world. It is the stage of the bodies it runs."""

    def __init__(self, world: World, name: str, link: Callable[[Machine], Link], telemetry: Telemetry) -> None:
        self._world = world
        self._dice = Random(f"{world.plan.seed} {name}")
        self.machine = Machine(world.loop, name)
        self.machine.context.run(STAGE.set, self)
        self.link = link(self.machine)
        self.code: int | None = None
        self._offsets = [self._dice.uniform(0, 10_000) for _ in range(2)]
        self._telemetry = telemetry
        self._detach = telemetry.subscribe(self._heard)
        self._worker: Worker | None = None
        self._shutdown: Shutdown | None = None
        self._is_wanted_out = False
        self._roused = asyncio.Event()

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def is_over(self) -> bool:
        return self.machine.is_dead

    # --- its clocks ---------------------------------------------------------------------------------------------------

    def monotonic(self) -> float:
        """Give a clock that does not count what the machine slept."""
        return self._world.loop.time() - self.machine.slept + self._offsets[0]

    def boot_clock(self) -> float:
        """Give a clock that does, and that may be set forward."""
        return self._world.loop.time() + self._offsets[1]

    # --- its life -----------------------------------------------------------------------------------------------------

    def start(self, *, is_embedded: bool = False) -> None:
        self._note("starts, embedded" if is_embedded else "starts")
        self.machine.run(self._embedded() if is_embedded else self._serve(), name="main")

    async def _serve(self) -> None:
        worker = self._make_worker()
        self._shutdown = Shutdown(
            drain_seconds=self._world.plan.drain,
            telemetry=self._telemetry,
            end=self.exit,
            monotonic=self.monotonic,
        )
        try:
            code = await self._shutdown.serve([worker])
        except OutlastError:
            code = START_FAILED
        self.exit(code)

    async def _embedded(self) -> None:
        worker = self._make_worker()
        for life in range(_LIVES):
            if life:
                self._note("starts again")
            try:
                await worker.start()
                await self._work_a_while()
                await self._stop(worker)
            except OutlastError:
                self._note("fails")
            if self._is_wanted_out:
                break
        self.exit(0 if worker.abandoned == 0 else 70)

    async def _work_a_while(self) -> None:
        if not self._is_wanted_out:
            self._roused.clear()
        try:
            async with asyncio.timeout(self._dice.uniform(0.0, 2.0) * self._world.plan.lease):
                await self._roused.wait()
        except TimeoutError:
            return

    async def _stop(self, worker: Worker) -> None:
        """Stop it by hand; in two of three stops a deadline lands in the middle, in one of those a nearer one too."""
        stopping = asyncio.ensure_future(self._until_stopped(worker))
        self._note("stops by hand")
        for _ in range(self._dice.choice((0, 1, 2))):
            await asyncio.sleep(self._dice.uniform(0.0, 0.5))
            self._bind(worker, self._dice.uniform(0.3, 1.0) * self._world.plan.drain)
        await stopping

    async def _until_stopped(self, worker: Worker) -> None:
        try:
            await worker.stop()
        finally:
            self._note("stopped")

    def _make_worker(self) -> Worker:
        driver = cast("JobDriver", self.link)
        self._worker = Worker(
            driver=driver,
            registry=self._world.registry,
            options=self._world.plan.options,
            telemetry=self._telemetry,
            roll=self._dice.random,
            client=Client(driver),
            monotonic=self.monotonic,
            clock=self.boot_clock,
            end=self.exit,
            beside=OnLoop,
        )
        return self._worker

    # --- what is done to it -------------------------------------------------------------------------------------------

    def tell(self, cause: str) -> None:
        """Send it SIGTERM; a frozen one hears of it when it goes on."""
        self._soon(lambda: self._told(cause))

    def hurry(self, seconds: float) -> None:
        """Bind its worker to a deadline of its own."""
        self._soon(lambda: None if self._worker is None else self._bind(self._worker, seconds))

    def kill(self) -> None:
        """End it between two of its steps."""
        if not self.is_over:
            self._note("killed")
            self._over()

    def freeze(self, seconds: float) -> None:
        self._note("frozen", seconds)
        self.machine.freeze(seconds)

    def sleep(self, seconds: float) -> None:
        self._note("sleeps", seconds)
        self.machine.sleep(seconds)

    def jump(self, seconds: float) -> None:
        """Set its boot clock forward."""
        self._note("clock jumps", seconds)
        self._offsets[1] += seconds

    def exit(self, code: int) -> None:
        """Be gone, as a process is: whatever still ran in it ends here."""
        if not self.is_over:
            self.code = int(code)
            self._note(f"exits {int(code)}")
            self._over()

    def _told(self, cause: str) -> None:
        self._is_wanted_out = True
        self._roused.set()
        seconds = self._world.plan.drain
        if self._shutdown is not None:
            if not self._shutdown.is_draining:
                self._note(f"told {cause}", seconds)
            self._shutdown.request(cause)
        elif self._worker is not None:
            self._bind(self._worker, seconds)
        else:
            self.exit(UNHEARD)

    def _bind(self, worker: Worker, seconds: float) -> None:
        if worker.phase not in {Phase.NEW, Phase.STOPPED}:
            self._note("bound", seconds)
            self._roused.set()
        worker.drain(DrainNotice(cause="bound", started=self.monotonic(), seconds=seconds))

    def _soon(self, step: Callable[[], object]) -> None:
        self._world.loop.call_soon(step, context=self.machine.context.copy())

    def _over(self) -> None:
        self._detach()
        self.machine.die()
        self._world.gone(self)

    # --- what it says -------------------------------------------------------------------------------------------------

    def act_of(self, ctx: JobContext) -> Act:
        return self._world.act_of(ctx.id)

    def note(self, step: str, ctx: JobContext, what: str = "") -> None:
        if not self.is_over:
            name = self._world.history.name(ctx.id)
            self._world.history.add(Body, step=step, job=name, claim_no=ctx.claim_no, machine=self.name, what=what)

    def crash(self) -> None:
        self.kill()

    def _heard(self, event: str, facts: Mapping[str, object]) -> None:
        if event in _TOLD:
            about = str(facts[_TOLD[event]])
            if _TOLD[event] == "job_id":
                about = self._world.history.named(about)
            self._world.history.add(Said, machine=self.name, event=event, about=about)

    def _note(self, what: str, seconds: float = 0.0) -> None:
        self._world.history.add(Fate, machine=self.name, what=what, seconds=round(seconds, 6))
