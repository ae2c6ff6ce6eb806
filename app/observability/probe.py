"""A listener for tests: remembers every event and wakes whoever waits for one, so that no test sleeps.

Events come from any thread. Production never builds one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .telemetry import Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One event with its facts."""

    event: str
    facts: Mapping[str, object]


class Probe:
    """Everything one telemetry has said since the probe was attached."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._lock = threading.Lock()
        self._heard: list[Heard] = []
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self.detach: Callable[[], None] = telemetry.subscribe(self._hear)

    def of(self, event: str, **facts: object) -> list[Heard]:
        """Give the events of this name whose facts include these, in order."""
        with self._lock:
            heard = list(self._heard)
        return [one for one in heard if one.event == event and facts.items() <= one.facts.items()]

    async def wait(self, event: str, *, count: int = 1, within: float = 10.0, **facts: object) -> Heard:
        """Wait until such an event was heard `count` times, now or before, and give that one.

        Raises:
            TimeoutError: it was not heard within `within` seconds; the message names what was.
        """
        fresh = asyncio.Event()
        entry = (asyncio.get_running_loop(), fresh)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(within):
                while len(found := self.of(event, **facts)) < count:
                    await fresh.wait()
                    fresh.clear()
        except TimeoutError:
            raise TimeoutError(f"not heard: {event} {facts}; heard: {self.names()}") from None
        finally:
            self._waiting.remove(entry)
        return found[count - 1]

    def names(self) -> list[str]:
        """Give the names of all events heard, in order."""
        with self._lock:
            return [one.event for one in self._heard]

    def _hear(self, event: str, facts: Mapping[str, object]) -> None:
        with self._lock:
            self._heard.append(Heard(event=event, facts=dict(facts)))
        for loop, fresh in tuple(self._waiting):
            loop.call_soon_threadsafe(fresh.set)
