"""The rows of bulk operations: each with its jobs and their verdicts, and whether there is anything to do for one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from ...domain.bulk import BULK_KEPT, BulkItem, BulkState, BulkView
from ...domain.job import JobId


@dataclass(slots=True, kw_only=True)
class Operation:
    """An operation and its jobs by their ids."""

    view: BulkView
    items: dict[JobId, BulkItem] = field(default_factory=dict)

    def is_old(self, now: datetime) -> bool:
        """Say whether it ended so long ago that it is to be deleted."""
        return self.view.ended_at is not None and self.view.ended_at < now - BULK_KEPT


def must_work_off(operations: Iterable[Operation], now: datetime) -> bool:
    """Say whether an operation runs, or an old one is to be deleted."""
    return any(each.view.state is BulkState.RUNNING or each.is_old(now) for each in operations)
