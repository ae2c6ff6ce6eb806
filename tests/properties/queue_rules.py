"""The commands of the state machine that hold queues back: pauses, some that end by themselves, and limits."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from hypothesis import strategies as st
from hypothesis.stateful import rule

from app.domain.queue import QueueChange, QueueFacts
from tests.properties.driver_model import QUEUES, DriverModel, delays, queues


class QueueRules(DriverModel):
    """Commands in any order."""

    @rule(queue=queues, lasts=st.none() | delays)
    def pause(self, queue: str, lasts: timedelta | None) -> None:
        until = None if lasts is None else self.twins.now() + lasts
        self.twins.ask(lambda side: side.driver.pause_queue(queue, by="ops", reason="test", until=until))
        self._facts()

    @rule(queue=queues)
    def resume(self, queue: str) -> None:
        self.twins.ask(lambda side: side.driver.resume_queue(queue))
        self._facts()

    @rule(queue=queues, most=st.sampled_from([None, None, 1, 2]))
    def limit_running(self, queue: str, most: int | None) -> None:
        self.twins.ask(lambda side: side.driver.set_queue(queue, QueueChange(concurrency=most)))
        self._facts()

    @rule(queue=queues, most=st.sampled_from([None, None, 2, 5]))
    def limit_depth(self, queue: str, most: int | None) -> None:
        self.twins.ask(lambda side: side.driver.set_queue(queue, QueueChange(max_depth=most)))
        self._facts()

    def _facts(self) -> dict[str, QueueFacts]:
        """Demand that both know the same of every queue."""
        return {queue: self._facts_of(queue) for queue in QUEUES}

    def _facts_of(self, queue: str) -> QueueFacts:
        return cast("QueueFacts", self.twins.ask(lambda side: side.driver.queue_facts(queue)))
