"""The doctor: asks the store and its own process what there is to know, and lets every check judge it.

Changes nothing, and answers for a store that is away, older or another's as well, or that says nothing: within a bound
that is shorter than a request's. One examination at a time: who asks meanwhile gets the one after, or this one where it
takes long. Called by the HTTP route, the dashboard and the command line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ...domain.audit import Action, AuditQuery, AuditView
from ...domain.errors import DriverUnavailable, OutlastError
from ...domain.explain_fleet import is_alive
from ...domain.waited import waited_for
from ...drivers.outbox import OutboxStore
from ...drivers.protocol import JobDriver, Wake
from .checks import CHECKS
from .finding import Examined, Limits, Report, Result, Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long an examination may take: what the store tells of itself, hearing a wake-up, and all of it.

    Who has waited for another's for longer than `turn` takes what that found, and begins none of its own.
    """

    vitals: timedelta = timedelta(seconds=3.5)
    hearing: timedelta = timedelta(seconds=3)
    whole: timedelta = timedelta(seconds=8.5)
    turn: timedelta = timedelta(seconds=0.5)


class _Last(NamedTuple):
    began: float
    ended: float
    report: Report


class Doctor:
    """Examines one service. `surroundings` tells of the process, and may look at modules and ports as it does."""

    def __init__(
        self,
        driver: JobDriver,
        outbox: OutboxStore[Any] | None,
        *,
        surroundings: Callable[[], Surroundings],
        limits: Limits | None = None,
        bounds: Bounds | None = None,
        now: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._outbox = outbox
        self._surroundings = surroundings
        self._limits = limits or Limits()
        self._bounds = bounds or Bounds()
        self._now = now
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._last: _Last | None = None

    async def examine(self) -> Report:
        """Examine now, or give what another caller's examination found that began after this one was asked for.

        After a long wait for one that began before, which a sick store makes long, that one is given.
        """
        asked_at = self._monotonic()
        async with self._lock:
            has_waited = self._monotonic() - asked_at > self._bounds.turn.total_seconds()
            last = self._last
            if last is not None and (last.ended if has_waited else last.began) >= asked_at:
                return last.report
            with waited_for(is_so=False):  # what is asked of a busy store is known once it has answered
                began, report = self._monotonic(), await self._examine()
            self._last = _Last(began, self._monotonic(), report)
            return report

    async def _examine(self) -> Report:
        examined = await self._look()
        return Report(
            at=examined.now,
            results=tuple(Result(check=check, finding=check.judge(examined)) for check in CHECKS),
        )

    async def _look(self) -> Examined:
        surroundings = self._surroundings()
        sent, began = self._now(), self._monotonic()
        until = asyncio.get_running_loop().time() + self._bounds.whole.total_seconds()
        try:
            async with _bounded(asyncio.timeout(self._bounds.vitals.total_seconds())):
                vitals = await self._driver.vitals()
        except OutlastError as error:
            return Examined(now=sent, took=timedelta(), surroundings=surroundings, limits=self._limits, error=error)
        took = timedelta(seconds=self._monotonic() - began)
        examined = Examined(
            now=sent + took / 2, took=took, surroundings=surroundings, limits=self._limits, vitals=vitals
        )
        if vitals.server is not None:
            examined = replace(examined, heard=await self._hear())
        if vitals.work is None:
            return examined
        return await self._with_outbox(await self._with_work(examined, until), until)

    async def _with_work(self, examined: Examined, until: float) -> Examined:
        """Add what needs our schema; a store that goes away meanwhile is one that did not answer."""
        driver = self._driver
        try:
            async with _bounded(asyncio.timeout_at(until)):
                store_now = await driver.database_time()
                workers = await driver.workers()
                return replace(
                    examined,
                    store_now=store_now,
                    workers=tuple(each for each in workers if is_alive(each, store_now)),
                    queues=await driver.queues(),
                    job_types=await driver.job_types(),
                    moved=await self._moved(examined),
                )
        except OutlastError as error:
            return replace(examined, error=error)

    async def _moved(self, examined: Examined) -> tuple[AuditView, ...]:
        """Give the newest rows of the audit about moves to each store that has not had all of them; by an index."""
        if examined.vitals is None or examined.vitals.work is None:
            return ()
        asked = [AuditQuery(action=Action.JOBS_MOVE, target=move.target) for move in examined.vitals.work.moves]
        return tuple([row for query in asked for row in (await self._driver.audit(query)).items])

    async def _with_outbox(self, examined: Examined, until: float) -> Examined:
        """Add the outbox, which may be in another database."""
        try:
            async with _bounded(asyncio.timeout_at(until)):
                return replace(examined, outbox=None if self._outbox is None else await self._outbox.view(1))
        except OutlastError as error:
            return replace(examined, outbox_error=error)

    async def _hear(self) -> timedelta | None:
        """Give how long it took to listen and to hear a wake-up of our own; None without one."""
        heard: list[Wake] = []
        began, bound = self._monotonic(), self._bounds.hearing.total_seconds()
        try:
            async with asyncio.timeout(bound), self._driver.listen(heard.append, news=frozenset()):
                took = timedelta(seconds=self._monotonic() - began)
        except (TimeoutError, OutlastError):
            return None
        return took if heard[:1] == [Wake.LISTENING] else None


@asynccontextmanager
async def _bounded(bound: asyncio.Timeout) -> AsyncIterator[None]:
    """Take a store that is silent until the bound for one that does not answer."""
    try:
        async with bound:
            yield
    except TimeoutError as late:
        if not bound.expired():
            raise
        raise DriverUnavailable(
            "the store did not answer in the time that an examination has",
            fix="check that PostgreSQL answers, and that this process has connections to spare",
        ) from late
