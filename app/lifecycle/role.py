"""One lifecycle for every long-lived part of a process: start, drain, stop, over.

`start` returns when the role runs, `stop` when it has stopped; both can be called at any time, from any number of
callers, and join. What a role does lives in its `live`; each start gives it a `Life` of its own, so that nothing of an
earlier one is left in a later one. Roles are driven by `shutdown`, or by the code that embeds them.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from ..domain.errors import Draining, Internal
from .drain import DrainBudget, DrainNotice
from .status import HeldRun, Tally
from .tasks import first_of, start_task


class Phase(StrEnum):
    """How far a role is."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    LEAVING = "leaving"
    STOPPED = "stopped"


class Life:
    """One run of a role from start to stopped."""

    def __init__(self, *, monotonic: Callable[[], float]) -> None:
        self.budget = DrainBudget(monotonic=monotonic)
        self.is_running = asyncio.Event()
        self.is_leaving = asyncio.Event()
        self.is_closing = asyncio.Event()
        self.is_idle = asyncio.Event()
        self.is_failed = asyncio.Event()
        self.is_over = asyncio.Event()
        self.failure: BaseException | None = None
        # Of the process's drain, there as soon as that begins, also while the loop is blocked.
        self.notice: DrainNotice | None = None

    def running(self) -> None:
        """Say that the role runs; `start` returns."""
        self.is_running.set()

    def idle(self) -> None:
        """Say that no work is in flight any more, or that what is has been given up."""
        self.is_idle.set()

    def fail(self, error: BaseException) -> None:
        """Report that a part died which the role cannot do without; the owner drains it. The first report stands."""
        self.failure = self.failure or error
        self.is_failed.set()


class Hooks(Protocol):
    """Who drains a role that somebody else started, when the process is told to leave."""

    @property
    def is_draining(self) -> bool:
        """Say whether the process was told already."""
        ...

    def request(self, cause: str) -> object:
        """Tell the process to leave, or join the drain under way. Any thread."""
        ...

    def hook(self, role: Role) -> None:
        """Drain this role, too; once, however often it is asked for. On the role's loop."""
        ...

    def unhook(self, role: Role) -> None:
        """Drain it no more."""
        ...


class Role(ABC):
    """A long-lived part of a process.

    `hooks` drains the role with its process from each start to the end of that life; without, whoever started the role
    has to stop it. `is_shown`: worth a name in what the process shows of itself.
    """

    is_shown = True

    def __init__(
        self, name: str, *, monotonic: Callable[[], float] = time.monotonic, hooks: Hooks | None = None
    ) -> None:
        self.name = name
        self._hooks = hooks
        self._monotonic = monotonic
        self._life: Life | None = None
        self._last_failure: BaseException | None = None
        self._phase = Phase.NEW
        self._task: asyncio.Task[None] | None = None

    @property
    def phase(self) -> Phase:
        """Give how far the role is."""
        life = self._life
        if life is None:
            return self._phase
        if life.is_leaving.is_set():
            return Phase.LEAVING
        return Phase.RUNNING if life.is_running.is_set() else Phase.STARTING

    @property
    def abandoned(self) -> int:
        """Give how many pieces of work the last life gave up when its time was over."""
        return 0

    @property
    def failure(self) -> BaseException | None:
        """Give what the life at hand, or else the last one, failed of."""
        return self._last_failure if self._life is None else self._life.failure

    def held(self) -> tuple[HeldRun, ...]:
        """Give the work in hand. Any thread."""
        return ()

    def tally(self) -> Tally:
        """Count what became of the work that the last drain told to stop. Any thread."""
        return Tally()

    def warn(self, notice: DrainNotice) -> None:
        """Leave word of a drain for threads of the role's own: the loop may be blocked. Safe in a signal handler."""
        life = self._life
        if life is not None and life.notice is None:
            life.notice = notice

    async def start(self) -> None:
        """Start, and return once running; on a role that runs, nothing. Concurrent starts join.

        Raises:
            Draining: the role is leaving, or was told to leave before it ran, or its process is leaving. A stopped role
                can be started again.
        """
        if self.phase is Phase.LEAVING:
            raise self._refused("is leaving")
        if self._hooks is not None and self._hooks.is_draining:
            raise self._refused("belongs to a process that is leaving")
        life = self._life
        if life is None:
            if self._hooks is not None:
                self._hooks.hook(self)
            life = self._life = Life(monotonic=self._monotonic)
            self._task = start_task(self._run(life), name=f"outlast.{self.name}")
        await first_of(life.is_running, life.is_over)
        if life.is_running.is_set():
            return
        raise life.failure or self._refused("was told to stop before it ran")

    async def stop(self) -> None:
        """Stop, and return once stopped: work in hand is waited for without a deadline and is not told anything.

        Idempotent; concurrent stops join one teardown, and each gets the failure of a life that failed. A drain that
        lands meanwhile gives the wait its deadline.
        """
        life = self._life
        if life is None:
            return
        life.is_leaving.set()
        life.is_closing.set()
        await life.is_over.wait()
        if life.failure is not None:
            raise life.failure

    def drain(self, notice: DrainNotice) -> None:
        """Begin to leave at once and be gone by the notice's deadline; `stop` waits for the end. Never blocks.

        On a role that is stopping already it binds the deadline; on one that does not run, nothing.
        """
        life = self._life
        if life is None:
            return
        self.warn(notice)
        life.budget.bind(notice)
        life.is_leaving.set()
        self.told(life, notice)

    async def wait_idle(self) -> None:
        """Wait until no work is in flight, or until what is has been given up."""
        if (life := self._life) is not None:
            await life.is_idle.wait()

    async def wait_failed(self) -> BaseException | None:
        """Wait until the role has failed or is over; gives the failure, of the last life when it is over already."""
        if (life := self._life) is not None:
            await first_of(life.is_failed, life.is_over)
        return self.failure

    def told(self, life: Life, notice: DrainNotice) -> None:  # noqa: B027 - most roles have nobody to tell
        """Do what has to happen in the instant a drain is bound; overridden by roles that have someone to tell."""

    @abstractmethod
    async def live(self, life: Life) -> None:
        """Be the role: call `life.running()`, end soon after `life.is_leaving` or by the budget, leave nothing open.

        A role that others still need while they leave ends after `life.is_closing`, which `stop` sets.
        """

    async def _run(self, life: Life) -> None:
        try:
            await self.live(life)
        except Exception as error:  # noqa: BLE001 - kept for whoever awaits start or stop; a role always ends
            life.fail(error)
        except BaseException as error:  # noqa: BLE001 - an exit or a cancel is a death, and not that of who waits
            dead = Internal(f"the {self.name} was ended by {type(error).__name__}", fix="look for what raised it")
            dead.__cause__ = error
            life.fail(dead)
        finally:
            self._phase = Phase.STOPPED
            self._last_failure = life.failure
            self._life = None
            self._task = None
            if self._hooks is not None:
                self._hooks.unhook(self)
            life.idle()
            life.is_over.set()

    def _refused(self, why: str) -> Draining:
        return Draining(f"the {self.name} {why}", fix="wait until stop() has returned, then start again")


class Announcer(Role):
    """Says once that every role before it runs; it has nothing else to do."""

    is_shown = False

    def __init__(self, announce: Callable[[], None]) -> None:
        super().__init__("announcer")
        self._announce = announce

    async def live(self, life: Life) -> None:
        """Announce, then wait to leave."""
        self._announce()
        life.running()
        await life.is_leaving.wait()
