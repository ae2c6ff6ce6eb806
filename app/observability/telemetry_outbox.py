"""What relays say: the wording of their events, and the counters that move with them. A part of `telemetry`."""

from __future__ import annotations

from ..domain.outbox import OutboxView, Pass
from .metrics import Metrics
from .telemetry_attempts import Level


class OutboxEvents:
    """The events of relays; whoever inherits them says how they are said."""

    metrics: Metrics

    def relay_started(self) -> None:
        """A relay publishes."""
        self._say("info", "relay.started")

    def relay_stopped(self) -> None:
        """A relay has left in order."""
        self._say("info", "relay.stopped")

    def outbox_passed(self, done: Pass) -> None:
        """A pass is committed; only now does anything count."""
        self.metrics.outbox_rows("published", done.published)
        self.metrics.outbox_rows("deduped", done.deduped)
        self.metrics.outbox_rows("quarantined", len(done.quarantined))
        self.metrics.outbox_deferred(done.deferred)
        if done.deferred:
            fix = "let workers catch up, or raise the maximum depth of the queue with `outlast queues set`"
            self._warn("outbox.deferred", count=done.deferred, fix=fix)
        fix = "mend the cause, then run `outlast outbox replay`"
        for one in done.quarantined:
            self._say("error", "outbox.quarantined", outbox_id=str(one.id), job=one.name, code=one.code, fix=fix)

    def outbox_pass_failed(self, error: BaseException) -> None:
        """A pass did not come to its end; repeated after a pause, and never a second job."""
        self._fail("outbox.pass_failed", error)

    def outbox_recovered(self, count: int) -> None:
        """Rows of a relay whose lease has passed are staged again."""
        self._say("warning", "outbox.recovered", count=count)

    def outbox_seen(self, view: OutboxView) -> None:
        """Show how far the outbox is."""
        self.metrics.show_outbox(view)

    def _say(self, level: Level, event: str, **facts: object) -> None:
        raise NotImplementedError

    def _fail(self, event: str, error: BaseException, **facts: object) -> None:
        raise NotImplementedError

    def _warn(self, event: str, *, level: Level = "warning", **facts: object) -> None:
        raise NotImplementedError
