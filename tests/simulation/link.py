"""A machine's way to the store, and everything that can happen to a call on it.

A call can be late, be refused before it was sent, lose its reply after it was executed, hang until the client gives
up, or be executed at the store when the client has long given up on it. What happens is drawn by lot, from odds that
the world sets and takes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, TypeVar

from app.domain.errors import DriverUnavailable, Internal, OutlastError, RequestInvalid
from app.domain.outcome import Completed, Settlement
from app.drivers.memory.driver import MemoryDriver
from app.drivers.protocol import NEWS, Wake
from tests.simulation.loop import Machine, VirtualLoop
from tests.simulation.record import History, Renewed, Said, Sent

AnswerT = TypeVar("AnswerT")

_RENEWING = {"renew", "register_worker"}
REFUSED_RESULT = "no store takes this"


class Fault(StrEnum):
    """What happens to one call."""

    NONE = "arrives"
    BEFORE = "refused before it was sent"
    AFTER = "executed, its reply lost"
    HANG = "executed, no reply until the client gives up"
    LATE = "given up on, executed later"
    BROKEN = "executed, then a fault of the store's own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """How likely each fault is for one call, how slow a call can be, and how likely a wake-up is lost.

    With `only`, nothing happens to calls of other verbs.
    """

    before: float = 0.0
    after: float = 0.0
    hang: float = 0.0
    late: float = 0.0
    broken: float = 0.0
    slow: float = 0.0
    slow_seconds: float = 0.0
    deaf: float = 0.0
    only: tuple[str, ...] = ()

    def of(self, verb: str) -> Odds:
        """Give the odds for one verb."""
        return self if not self.only or verb in self.only else Odds()

    def draw(self, roll: float) -> Fault:
        """Give the fault that a number in [0, 1) stands for."""
        for fault, odds in (
            (Fault.BEFORE, self.before),
            (Fault.AFTER, self.after),
            (Fault.HANG, self.hang),
            (Fault.LATE, self.late),
            (Fault.BROKEN, self.broken),
        ):
            if roll < odds:
                return fault
            roll -= odds
        return Fault.NONE


@dataclass(slots=True, kw_only=True)
class Weather:
    """What all links of a world share: the odds, and until when the store is away."""

    odds: Odds
    patience_seconds: float
    away_until: float = 0.0


class Link:
    """A `JobDriver` whose calls go over a bad line."""

    def __init__(
        self,
        driver: MemoryDriver,
        *,
        loop: VirtualLoop,
        machine: Machine,
        weather: Weather,
        history: History,
        dice: Random,
    ) -> None:
        self._driver = driver
        self._loop = loop
        self._machine = machine
        self._weather = weather
        self._history = history
        self._dice = dice
        self.cut_until = 0.0

    @property
    def capabilities(self) -> Any:
        return self._driver.capabilities

    def __getattr__(self, verb: str) -> Any:
        return self._over_the_line(verb, getattr(self._driver, verb))

    @asynccontextmanager
    async def open_heartbeat(self) -> AsyncIterator[Any]:
        await self._call("open_heartbeat", self._driver.ping)
        async with self._driver.open_heartbeat() as store:
            yield _HeartbeatLink(self, store)

    @asynccontextmanager
    async def listen(self, on_wake: Callable[[Wake], None], *, news: frozenset[Wake] = NEWS) -> AsyncIterator[None]:
        """Hear wake-ups in this machine's own time, some of them never."""

        def heard(wake: Wake) -> None:
            if self._dice.random() >= self._weather.odds.deaf and not self._is_down():
                self._loop.call_soon(on_wake, wake, context=self._machine.context.copy())

        async with self._driver.listen(heard, news=news):
            yield

    def _is_down(self) -> bool:
        return max(self._weather.away_until, self.cut_until) > self._loop.time()

    def _over_the_line(
        self, verb: str, call: Callable[..., Coroutine[Any, Any, AnswerT]]
    ) -> Callable[..., Coroutine[Any, Any, AnswerT]]:
        def over(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, AnswerT]:
            return self._call(verb, lambda: call(*args, **kwargs), args)

        return over

    async def _call(
        self, verb: str, call: Callable[[], Coroutine[Any, Any, AnswerT]], args: tuple[Any, ...] = ()
    ) -> AnswerT:
        odds, roll = self._weather.odds.of(verb), self._dice.random
        fault = odds.draw(roll())
        sent = self._loop.time()
        self._note(verb, fault.value)
        await self._way(verb, odds)
        if self._is_down():
            self._note(verb, "the store is away")
            await asyncio.sleep(roll() * self._weather.patience_seconds)
            raise _away(verb)
        if fault is Fault.BEFORE:
            raise _away(verb)
        _refuse_values(args)
        if fault is Fault.LATE:
            after = roll() * 3 * self._weather.patience_seconds
            Context().run(self._loop.call_later, after, _for_nobody, call)
            await asyncio.sleep(roll() * min(after, self._weather.patience_seconds))
            raise _away(verb)
        answer = at_once(call())
        if verb == "register_worker":
            self._history.add(Said, machine=self._machine.name, event="registered", about=str(answer))
        if fault is Fault.HANG:
            await asyncio.sleep(self._weather.patience_seconds)
        if fault is Fault.BROKEN:
            raise Internal(f"{verb} went wrong after it was done", fix="none, it is made up")
        if fault is not Fault.NONE:
            raise _away(verb)
        await self._way(verb, odds)
        if verb in _RENEWING:
            self._history.add(Renewed, machine=self._machine.name, sent=sent)
        return answer

    async def _way(self, verb: str, odds: Odds) -> None:
        roll = self._dice.random()
        if roll < odds.slow:
            self._note(verb, "is slow")
            await asyncio.sleep(self._dice.random() * odds.slow_seconds)
        elif roll < 0.5:
            await asyncio.sleep(0)

    def _note(self, verb: str, fate: str) -> None:
        self._history.add(Sent, machine=self._machine.name, verb=verb, fate=fate)


class _HeartbeatLink:
    """The heartbeat's connection over the same line."""

    def __init__(self, link: Link, store: Any) -> None:
        self._link = link
        self._store = store

    def __getattr__(self, verb: str) -> Any:
        return self._link._over_the_line(verb, getattr(self._store, verb))


def at_once(work: Coroutine[Any, Any, AnswerT]) -> AnswerT:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: AnswerT = end.value
        return answer
    raise AssertionError("the memory driver waited")


def _for_nobody(call: Callable[[], Coroutine[Any, Any, object]]) -> None:
    try:
        at_once(call())
    except OutlastError:
        return


def _refuse_values(args: tuple[Any, ...]) -> None:
    """Be a store that refuses a value: the whole statement, as long as that value is in it."""
    settlements = args[0] if args and isinstance(args[0], list | tuple) else ()
    for one in settlements:
        if isinstance(one, Settlement) and isinstance(one.outcome, Completed) and REFUSED_RESULT in str(one.outcome):
            raise RequestInvalid("a value cannot be stored", fix="none, it is made up")


def _away(verb: str) -> DriverUnavailable:
    return DriverUnavailable(f"{verb} got no answer", fix="none, it is made up")
