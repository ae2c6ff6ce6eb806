"""The commands of the state machine that let tenants take turns in a queue, beside limits, rates and pauses."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from app.domain.queue import QueueChange
from tests.properties.driver_model import queues
from tests.properties.queue_rules import QueueRules

weights = st.dictionaries(st.sampled_from(["default", "acme"]), st.sampled_from([None, 1, 2, 3]), max_size=2)


class FairRules(QueueRules):
    """Commands in any order."""

    @rule(queue=queues, is_fair=st.sampled_from([True, True, False]), given=weights)
    def take_turns(self, queue: str, is_fair: bool, given: dict[str, int | None]) -> None:
        self.twins.ask(lambda side: side.driver.set_queue(queue, QueueChange(is_fair=is_fair, weights=given)))
        self._facts()
        if is_fair:
            self.ever_fair.add(queue)

    @rule()
    def line_up(self) -> None:
        self.twins.ask(lambda side: side.driver.line_up())
