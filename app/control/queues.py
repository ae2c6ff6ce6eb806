"""Queues as operators see them: how deep, how old, paused by whom; pause and resume.

A queue exists as soon as a job or a setting names it; pausing one that is empty is how a rollout is prepared.
Called by the HTTP routes.
"""

from __future__ import annotations

import re

from ..domain.errors import NotFound, RequestInvalid
from ..domain.job import NAME_PATTERN
from ..domain.snapshot import QueueView
from ..drivers.protocol import JobDriver


class QueueControl:
    """Reads and pauses queues."""

    def __init__(self, driver: JobDriver) -> None:
        self._driver = driver

    async def list(self) -> tuple[QueueView, ...]:
        """Give every queue that has jobs or a setting, by name."""
        return await self._driver.queues()

    async def find(self, name: str) -> QueueView:
        """Give one queue. Raises `NOT_FOUND` for one that nothing names."""
        for queue in await self._driver.queues():
            if queue.name == name:
                return queue
        raise NotFound(
            f"no job and no setting names a queue {name!r}",
            fix="list the queues with GET /v1/queues; a queue appears with its first job or its first pause",
        )

    async def pause(self, name: str, *, by: str, reason: str | None) -> QueueView:
        """Stop claims from a queue; running jobs go on. Pausing a paused queue keeps the first pause."""
        _check_name(name)
        await self._driver.pause_queue(name, by=by, reason=reason)
        return await self._after_change(name)

    async def resume(self, name: str) -> QueueView:
        """Let claims begin again; resuming a queue that is not paused changes nothing."""
        _check_name(name)
        await self._driver.resume_queue(name)
        return await self._after_change(name)

    async def _after_change(self, name: str) -> QueueView:
        try:
            return await self.find(name)
        except NotFound:
            return QueueView(name=name, depth={}, oldest_ready_seconds=None)


def _check_name(name: str) -> None:
    if not re.fullmatch(NAME_PATTERN, name):
        raise RequestInvalid(
            "this is not a queue name",
            fix="use lower-case letters, digits, '_', '.', ':' and '-', at most 128 characters",
            errors=[{"pointer": "/name", "detail": f"does not match {NAME_PATTERN}", "in": "path"}],
        )
