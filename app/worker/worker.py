"""The worker role: claims jobs, runs them, settles them; a process has one, an embedding program any number.

Start and stop it like any role. It never touches signals: whoever owns the process tells it to drain. Built by the
composition root.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace

from ..domain.drain import ASKED_FOR_BY
from ..domain.errors import SettingsInvalid
from ..domain.job import WorkerId
from ..drivers.protocol import JobDriver
from ..jobs.client import Client
from ..jobs.registry import Registry
from ..lifecycle.drain import DrainNotice
from ..lifecycle.role import Hooks, Life, Role
from ..lifecycle.shutdown import ExitCode
from ..lifecycle.status import HeldRun, Tally
from ..lifecycle.timers import Timers
from ..lifecycle.watchdog import briefly
from ..observability.logging import flush_log
from ..observability.telemetry import Telemetry
from ..steps.points import AtPoint
from .beside import Beside, OwnThread
from .containment import contain_tasks
from .kit import Kit
from .lease import boot_clock
from .options import WorkerOptions
from .session import Session


class Worker(Role):
    """Executes jobs of the registry's types from the queues of its options.

    `roll` gives random numbers in [0, 1) for backoff and jitter. `client` is what bodies enqueue with, else the
    ambient one. `end` ends the process when the event loop is beyond help; `clock` judges the lease. In a program that
    starts it by itself, `shutdown` drains it when the process is told to leave; with `drain_on_shutdown=False` nobody
    does, and whoever started it stops it. `on_drain_asked` hears, in a thread, why a drain is asked for through the
    store; without it the process is told where there is a `shutdown`, and else the worker drains by itself. The
    heartbeat runs in a `beside` of each life's own. A test kit moves the runs' `timers` with its clock and stands `at`
    the points of each attempt.
    """

    def __init__(
        self,
        *,
        driver: JobDriver,
        registry: Registry,
        options: WorkerOptions,
        telemetry: Telemetry,
        roll: Callable[[], float],
        client: Client | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] | None = None,
        end: Callable[[int], object] = os._exit,
        beside: Callable[[], Beside] = OwnThread,
        timers: Timers | None = None,
        at: AtPoint | None = None,
        name: str = "worker",
        shutdown: Hooks | None = None,
        drain_on_shutdown: bool = True,
        on_drain_asked: Callable[[str], object] | None = None,
    ) -> None:
        super().__init__(name, monotonic=monotonic, hooks=shutdown if drain_on_shutdown else None)
        if not len(registry):
            raise SettingsInvalid("the worker knows no job types", fix="name modules with jobs in OUTLAST_JOBS")
        self._telemetry = telemetry
        self._end = end
        self._session: Session | None = None
        self._was_away = False
        self._kit = Kit(
            driver=driver,
            registry=registry,
            options=replace(options, host=options.host or socket.gethostname(), pid=options.pid or os.getpid()),
            telemetry=telemetry,
            roll=roll,
            monotonic=monotonic,
            boot_clock=clock or boot_clock(),
            client=client,
            beside=beside,
            on_stall=self._stalled,
            on_asked=self._asked,
            timers=timers,
            at=at,
        )
        self._on_drain_asked = on_drain_asked or (None if self._hooks is None else self._hooks.request)
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def worker_id(self) -> WorkerId | None:
        """Give the id the store knows the worker by, None before the first start. A lost lease brings a new one."""
        return None if self._session is None else self._session.registration.worker_id

    @property
    def abandoned(self) -> int:
        """Give how many bodies the last life gave up."""
        return 0 if self._session is None else self._session.leaving.abandoned

    def held(self) -> tuple[HeldRun, ...]:
        """Give the jobs in hand. Any thread."""
        return () if self._session is None else self._session.runs_told.held()

    def tally(self) -> Tally:
        """Count what became of the jobs that the last drain told to stop. Any thread."""
        return Tally() if self._session is None else self._session.runs_told.tally()

    def store_was_away(self) -> None:
        """Hear, before a start, that the store could not be opened at once: nobody else may have reached it either."""
        self._was_away = True

    async def start(self) -> None:
        """Start like any role, with its own task among those that no body can cancel."""
        restore = self._contain()
        try:
            await super().start()
        finally:
            restore()

    def told(self, life: Life, notice: DrainNotice) -> None:
        """Tell every run."""
        if self._session is not None and self._session.life is life:
            self._session.told(notice)

    async def live(self, life: Life) -> None:
        """Be one life of the worker."""
        restore, self._loop = self._contain(), asyncio.get_running_loop()
        self._session = Session(self._kit, life)
        if self._was_away:
            self._session.outage()
        self._was_away = False
        try:
            await self._session.live()
        finally:
            self._was_away = self._session.ended_away()
            restore()

    def _contain(self) -> Callable[[], None]:
        return contain_tasks(asyncio.get_running_loop(), on_refused=self._telemetry.cancel_refused)

    def _asked(self, by: str) -> None:
        """Begin the drain that somebody asked for through the store; in the heartbeat's thread."""
        cause = f"{ASKED_FOR_BY}{by}"
        if self._on_drain_asked is not None:
            self._on_drain_asked(cause)
            return
        seconds = self._kit.options.drain.total_seconds()
        notice = DrainNotice(cause=cause, started=self._monotonic(), seconds=seconds)
        self.warn(notice)  # the loop may be blocked
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.drain, notice)

    def _stalled(self) -> None:
        """End the process from the heartbeat's thread: its loop has not moved for too long."""
        why = "the event loop made no progress"
        self._telemetry.process_ended(
            exit_code=ExitCode.LOOP_DIED, why=why, abandoned=[run.name for run in self.held()]
        )
        briefly(flush_log)
        self._end(ExitCode.LOOP_DIED)
