"""What housekeeping says: the wording of its events, and the counters that move with them. A part of `telemetry`."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from .metrics import Metrics


class PurgeEvents:
    """The events of housekeeping; whoever inherits them says how they are said."""

    metrics: Metrics

    def rows_purged(self, kind: str, count: int) -> None:
        """A step is committed; only now does anything count."""
        self.metrics.purged_rows(kind, count)

    def purge_round_ended(self, kind: str, count: int, seconds: float) -> None:
        """A round that this process ended has deleted `count` rows while it was at it."""
        if count:
            self._say("info", "purge.round_ended", kind=kind, count=count, seconds=round(seconds, 3))

    def purge_failed(self, kind: str, error: BaseException) -> None:
        """A step did not come to its end; the next one goes on where it was."""
        self._fail("purge.failed", error, kind=kind)

    def purge_seen(self, kind: str, behind: timedelta) -> None:
        """Show how long ago the last full round over a kind began."""
        self.metrics.show_purge_age(kind, behind.total_seconds())

    def _say(self, level: Literal["debug", "info", "warning", "error"], event: str, **facts: object) -> None:
        raise NotImplementedError

    def _fail(self, event: str, error: BaseException, **facts: object) -> None:
        raise NotImplementedError
