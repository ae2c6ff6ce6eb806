"""The controls of queues beside the jobs of a memory driver: the readable reference for what they do."""

from __future__ import annotations

from datetime import datetime

from ...domain.audit import UNCHANGED, AuditEntry
from ...domain.queue import (
    KEEP,
    MOST_COUNTED,
    Pause,
    QueueChange,
    QueueFacts,
    Setting,
    refuse_stale_queue,
    version_of_queue,
)
from ..protocol import Wake
from .audit import keep
from .store import Store
from .turns import line_up


class MemoryQueues:
    """The part of a memory driver that holds queues back. What each verb does is said by the protocol."""

    _store: Store

    async def pause_queue(
        self,
        queue: str,
        *,
        by: str,
        reason: str | None = None,
        until: datetime | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        """Stop claims from a queue; the pause that lasts longer stands."""
        with self._store.statement(audit) as now:
            pause, standing = Pause(at=now, by=by, reason=reason, until=until), self._store.pause_of(queue, now)
            is_change = standing is None or pause.outlasts(standing)
            if is_change:
                self._store.pauses[queue] = pause
            if until is not None:
                self._store.bell.add(Wake.DELAYED)
            _keep(self._store, audit, now, is_change=is_change)

    async def resume_queue(self, queue: str, *, audit: AuditEntry | None = None) -> None:
        """Let claims from a queue begin again."""
        with self._store.statement(audit) as now:
            is_change = self._store.pauses.pop(queue, None) is not None
            if is_change:
                self._store.bell.add(Wake.READY)
            _keep(self._store, audit, now, is_change=is_change)

    async def set_queue(
        self,
        queue: str,
        change: QueueChange,
        *,
        versions: frozenset[str] | None = None,
        audit: AuditEntry | None = None,
    ) -> None:
        """Set a queue's limits, whether it is fair, and weights."""
        with self._store.statement(audit) as now:
            limits = (self._store.concurrency.get(queue), self._store.max_depth.get(queue))
            is_fair = queue in self._store.turns.fair
            version = version_of_queue(self._store.pause_of(queue, now), *limits, is_fair=is_fair)
            refuse_stale_queue(queue, version, versions)
            _set(self._store.concurrency, queue, change.concurrency)
            _set(self._store.max_depth, queue, change.max_depth)
            if change.is_fair is False:
                self._store.turns.fair.discard(queue)
            elif change.is_fair is True:
                self._store.turns.fair.add(queue)
                line_up(self._store)
                self._store.bell.add(Wake.DELAYED)
            self._store.turns.weigh(queue, change.weights)
            if change.concurrency is not KEEP or change.is_fair is not KEEP:
                self._store.bell.add(Wake.READY)
            keep(self._store, audit, now)

    async def queue_facts(self, queue: str) -> QueueFacts:
        """Give what decides whether a queue's jobs are claimed and taken in."""
        with self._store.statement() as now:
            most = self._store.max_depth.get(queue)
            return QueueFacts(
                name=queue,
                at=now,
                pause=self._store.pause_of(queue, now),
                running=self._store.running_of(queue),
                concurrency=self._store.concurrency.get(queue),
                depth=min(self._store.depth_of(queue), MOST_COUNTED if most is None else most),
                max_depth=most,
                is_fair=queue in self._store.turns.fair,
            )


def _keep(store: Store, audit: AuditEntry | None, now: datetime, *, is_change: bool) -> None:
    if audit is not None:
        keep(store, audit if is_change else audit.came_to(UNCHANGED), now)


def _set(limits: dict[str, int], queue: str, setting: Setting) -> None:
    match setting:
        case None:
            limits.pop(queue, None)
        case int():
            limits[queue] = setting
        case _:
            pass
