"""What is said of bulk operations: the wording of their events, and the counters that move with them."""

from __future__ import annotations

from typing import Literal

from ..domain.bulk import BulkState, BulkStep, BulkVerdict, BulkView
from .metrics import Metrics


class BulkEvents:
    """The events of bulk operations; whoever inherits them says how they are said."""

    metrics: Metrics

    def bulk_made(self, view: BulkView) -> None:
        """Somebody has asked for an operation; from now on any worker works it off."""
        self._say("info", "bulk.made", **_facts(view), selected=view.selected, by=view.by)

    def bulk_stepped(self, step: BulkStep) -> None:
        """A batch is committed; only now does anything count."""
        counts = ((BulkVerdict.DONE, step.done), (BulkVerdict.CHANGED, step.changed), (BulkVerdict.FAILED, step.failed))
        for verdict, count in counts:
            self.metrics.bulk_jobs(step.view.action.value, verdict.value, count)
        if step.view.state is BulkState.DONE:
            view = step.view
            counted = {"done": view.done, "changed": view.changed, "failed": view.failed}
            self._say("info", "bulk.done", **_facts(view), **counted)

    def bulk_aborted(self, view: BulkView, *, by: str) -> None:
        """Somebody has stopped an operation; what it has done stays done."""
        self._say("warning", "bulk.aborted", **_facts(view), done=view.done, left=view.left, by=by)

    def _say(self, level: Literal["debug", "info", "warning", "error"], event: str, **facts: object) -> None:
        raise NotImplementedError


def _facts(view: BulkView) -> dict[str, object]:
    return {"bulk_id": str(view.id), "action": view.action.value}
