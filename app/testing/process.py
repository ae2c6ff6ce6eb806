"""One process of a test: a real worker over a driver of its own, on the kit's clock, that can be killed or held.

Its heartbeat runs on the test's loop, and its lease does not age by itself: only the store's clock, or somebody who
takes its claims away, ends it. Started by `crew`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from ..domain.job import JobId
from ..drivers.protocol import JobDriver
from ..lifecycle.drain import DrainNotice
from ..lifecycle.role import Phase
from ..lifecycle.tasks import start_task
from ..observability.metrics import Metrics
from ..observability.telemetry import Telemetry
from ..steps.points import AtPoint
from ..worker.beside import Beside, Main, OnEnd
from ..worker.options import QueueLimit, WorkerOptions
from ..worker.worker import Worker
from .clock import KitTimers
from .known import KitClient, Known
from .machine import Machine
from .stores import KitStore

LONG_LEASE = timedelta(days=24)  # the longest that fits the store's column
SHORT_LEASE = timedelta(seconds=30)
HEARTBEAT = timedelta(seconds=5)
QUICK_HEARTBEAT = timedelta(milliseconds=50)
CODE_VERSION = "test"
DRAIN_SECONDS = 25.0

_LOOK = timedelta(milliseconds=250)  # wake-ups are heard sooner
_LOOK_SECONDS = 0.005
_MOST = 1 - 2.0**-53  # the longest backoff: what a retry waits is then the same in every run


class OnLoop:
    """Runs the heartbeat on the test's loop: no thread goes on when a machine is held."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, main: Main, on_end: OnEnd) -> None:
        """Start a task."""
        self._task = start_task(_until_its_end(main, on_end), name="outlast.heartbeat")

    def join(self) -> None:
        """Do nothing: its last step was to say so."""


async def _until_its_end(main: Main, on_end: OnEnd) -> None:
    error: BaseException | None = None
    try:
        await main()
    except BaseException as exc:  # noqa: BLE001 - the heartbeat's last words, for whoever started it
        error = exc
    on_end(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How the processes of a test are made."""

    store: KitStore
    known: Known
    client: KitClient
    at: AtPoint
    lease: timedelta = LONG_LEASE
    heartbeat: timedelta = HEARTBEAT


class Process:
    """One worker and the machine it runs on. `knew` is how much was known when it was made."""

    def __init__(self, setup: Setup, driver: JobDriver) -> None:
        self.machine = Machine()
        self.timers = KitTimers(setup.store.clock)
        self.driver = driver
        self.knew = setup.known.changes
        self._clock = setup.store.clock
        self._notice: DrainNotice | None = None
        self._starting: asyncio.Task[None] | None = None
        options = WorkerOptions(
            queues=tuple(QueueLimit(queue=queue) for queue in sorted(setup.known.queues)),
            lease=setup.lease,
            heartbeat=setup.heartbeat,
            poll=_LOOK,
            code_version=CODE_VERSION,
        )
        self.worker = Worker(
            driver=driver,
            registry=setup.known.registry(),
            options=options,
            telemetry=Telemetry(metrics=Metrics()),
            roll=_most,
            client=setup.client,
            monotonic=setup.store.clock.monotonic,
            clock=_no_time,
            beside=_on_loop,
            timers=self.timers,
            at=setup.at,
        )

    @property
    def has_hands(self) -> bool:
        """Say whether it works: neither dead nor held, nor told to leave."""
        return self.machine.is_up and self.worker.phase is Phase.RUNNING

    def held(self) -> frozenset[str]:
        """Give the ids of the jobs in its hands."""
        return frozenset(run.job_id for run in self.worker.held())

    def holds(self, job_id: JobId) -> bool:
        """Say whether a job is in its hands."""
        return str(job_id) in self.held()

    async def start(self) -> None:
        """Start the worker on its machine; it may be dead or on hold before this returns."""
        starting = self._starting = self.machine.run(self.worker.start(), name="outlast.test.start")
        while self.machine.is_up and not starting.done():
            await asyncio.wait({starting}, timeout=_LOOK_SECONDS)
        if starting.done():
            await starting

    def drain(self, cause: str) -> None:
        """Tell it to leave, as a SIGTERM does."""
        self._notice = DrainNotice(cause=cause, started=self._clock.monotonic(), seconds=DRAIN_SECONDS)
        self.remind()

    def remind(self) -> None:
        """Have a drain look at the clock, which was moved."""
        if self._notice is not None:
            self.machine.context.copy().run(self.worker.drain, self._notice)

    async def stop(self) -> None:
        """Wait until it has left."""
        if self._starting is not None:
            await asyncio.wait({self._starting})
        await self.worker.stop()

    async def renew(self) -> None:
        """Renew its lease in the store, so that time may be moved under it."""
        if self.worker.worker_id is not None:
            async with self.driver.open_heartbeat() as heartbeat:
                await heartbeat.renew(self.worker.worker_id, ())


def _most() -> float:
    return _MOST


def _no_time() -> float:
    return 0.0


_on_loop: Callable[[], Beside] = OnLoop
