"""The doctor: asks the store and its own process what there is to know, and lets every check judge it.

Changes nothing, and answers for a store that is away, older or another's as well. One examination at a time: who asks
meanwhile gets the one after. Called by the HTTP route and the command line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ...domain.errors import OutlastError
from ...domain.explain_fleet import is_alive
from ...drivers.outbox import OutboxStore
from ...drivers.protocol import JobDriver, Wake
from .checks import CHECKS
from .finding import Examined, Limits, Report, Result, Surroundings

_HEARING = timedelta(seconds=10)


class Doctor:
    """Examines one service. `surroundings` tells of the process, and may look at modules and ports as it does."""

    def __init__(
        self,
        driver: JobDriver,
        outbox: OutboxStore[Any] | None,
        *,
        surroundings: Callable[[], Surroundings],
        limits: Limits | None = None,
        now: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._outbox = outbox
        self._surroundings = surroundings
        self._limits = limits or Limits()
        self._now = now
        self._monotonic = monotonic
        self._lock = asyncio.Lock()
        self._last: tuple[float, Report] | None = None

    async def examine(self) -> Report:
        """Examine now, or give what another caller's examination found that began after this one was asked for."""
        asked_at = self._monotonic()
        async with self._lock:
            if self._last is None or self._last[0] < asked_at:
                began = self._monotonic()
                self._last = (began, await self._examine())
            return self._last[1]

    async def _examine(self) -> Report:
        examined = await self._look()
        return Report(
            at=examined.now,
            results=tuple(Result(check=check, finding=check.judge(examined)) for check in CHECKS),
        )

    async def _look(self) -> Examined:
        surroundings = self._surroundings()
        sent, began = self._now(), self._monotonic()
        try:
            vitals = await self._driver.vitals()
        except OutlastError as error:
            return Examined(now=sent, took=timedelta(), surroundings=surroundings, limits=self._limits, error=error)
        took = timedelta(seconds=self._monotonic() - began)
        examined = Examined(
            now=sent + took / 2, took=took, surroundings=surroundings, limits=self._limits, vitals=vitals
        )
        if vitals.server is not None:
            examined = replace(examined, heard=await self._hear())
        return examined if vitals.work is None else await self._with_outbox(await self._with_work(examined))

    async def _with_work(self, examined: Examined) -> Examined:
        """Add what needs our schema; a store that goes away meanwhile is one that did not answer."""
        driver = self._driver
        try:
            store_now = await driver.database_time()
            workers = await driver.workers()
            return replace(
                examined,
                store_now=store_now,
                workers=tuple(each for each in workers if is_alive(each, store_now)),
                queues=await driver.queues(),
                job_types=await driver.job_types(),
            )
        except OutlastError as error:
            return replace(examined, error=error)

    async def _with_outbox(self, examined: Examined) -> Examined:
        """Add the outbox, which may be in another database."""
        try:
            return replace(examined, outbox=None if self._outbox is None else await self._outbox.view(1))
        except OutlastError as error:
            return replace(examined, outbox_error=error)

    async def _hear(self) -> timedelta | None:
        """Give how long it took to listen and to hear a wake-up of our own; None without one."""
        heard: list[Wake] = []
        began = self._monotonic()
        try:
            async with asyncio.timeout(_HEARING.total_seconds()), self._driver.listen(heard.append, news=frozenset()):
                took = timedelta(seconds=self._monotonic() - began)
        except (TimeoutError, OutlastError):
            return None
        return took if heard[:1] == [Wake.LISTENING] else None
