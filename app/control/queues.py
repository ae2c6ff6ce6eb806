"""Queues as operators see them: how deep, how old, paused by whom until when, how limited; and what they set.

A queue exists as soon as a job or a setting names it; pausing one that is empty is how a rollout is prepared.
Called by the HTTP routes and the command line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta

from ..domain.audit import Acting, Action, AuditEntry, Target
from ..domain.errors import NotFound, RequestInvalid
from ..domain.job import NAME_PATTERN
from ..domain.queue import KEEP, MOST_LIMIT, QueueChange, Setting
from ..domain.snapshot import QueueView
from ..domain.text import is_printable
from ..domain.turns import MOST_WEIGHT, MOST_WEIGHTS
from ..drivers.protocol import JobDriver
from .acting import entry_of


class QueueControl:
    """Reads queues, pauses and limits them."""

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
            fix="list the queues with GET /v1/queues; a queue appears with its first job or its first setting",
        )

    async def pause(
        self, name: str, *, by: str, reason: str | None, until: datetime | None = None, lasts: timedelta | None = None
    ) -> QueueView:
        """Stop claims from a queue, at most `until` or for as long as it `lasts`; running jobs go on.

        A pause shortens none that stands already: of two the longer stands, of two alike the first.

        Raises:
            RequestInvalid: it would have ended by now.
        """
        _check_name(name)
        if until is not None or lasts is not None:
            now = await self._driver.database_time()
            until = now + lasts if until is None and lasts is not None else until
            if until is not None and until <= now:
                raise _in_the_past(until, now)
        ends = None if until is None else until.isoformat()
        audit = _entry(Action.QUEUE_PAUSE, name, by=by, reason=reason, until=ends)
        await self._driver.pause_queue(name, by=by, reason=reason, until=until, audit=audit)
        return await self._after_change(name)

    async def resume(self, name: str, *, by: str, reason: str | None = None) -> QueueView:
        """Let claims begin again; resuming a queue that is not paused changes nothing."""
        _check_name(name)
        await self._driver.resume_queue(name, audit=_entry(Action.QUEUE_RESUME, name, by=by, reason=reason))
        return await self._after_change(name)

    async def limit(
        self,
        name: str,
        change: QueueChange,
        *,
        by: str,
        reason: str | None = None,
        versions: frozenset[str] | None = None,
    ) -> QueueView:
        """Set how many jobs of a queue may run in the fleet or wait in it, and turns; what is kept stays as it is.

        Raises:
            RequestInvalid: a limit or a weight is out of bounds.
            PreconditionFailed: the settings of the queue are in none of the versions.
        """
        _check_name(name)
        _check_limit("concurrency", change.concurrency, least=1)
        _check_limit("max_depth", change.max_depth, least=0)
        _check_weights(change.weights)
        limits = {"concurrency": change.concurrency, "max_depth": change.max_depth, "is_fair": change.is_fair}
        details: dict[str, object] = {
            what: "none" if limit is None else limit for what, limit in limits.items() if limit is not KEEP
        }
        if change.weights:
            details["weights"] = {tenant: weight or "none" for tenant, weight in change.weights.items()}
        audit = _entry(Action.QUEUE_UPDATE, name, by=by, reason=reason, **details)
        await self._driver.set_queue(name, change, versions=versions, audit=audit)
        return await self._after_change(name)

    async def _after_change(self, name: str) -> QueueView:
        try:
            return await self.find(name)
        except NotFound:
            return QueueView(name=name, depth={}, oldest_ready_seconds=None)


def _entry(action: Action, name: str, *, by: str, reason: str | None, **details: object) -> AuditEntry | None:
    return entry_of(Acting(actor=by, reason=reason), action, Target.QUEUE, name, details=details)


def _check_name(name: str) -> None:
    if not re.fullmatch(NAME_PATTERN, name):
        raise RequestInvalid(
            "this is not a queue name",
            fix="use lower-case letters, digits, '_', '.', ':' and '-', at most 128 characters",
            errors=[{"pointer": "/name", "detail": f"does not match {NAME_PATTERN}", "in": "path"}],
        )


def _check_limit(name: str, value: Setting, *, least: int) -> None:
    if isinstance(value, int) and not least <= value <= MOST_LIMIT:
        raise RequestInvalid(
            f"{name} cannot be {value}",
            fix=f"give a number from {least} to {MOST_LIMIT}, or none for no limit; to stop claims, pause the queue",
            errors=[{"pointer": f"/{name}", "detail": f"not between {least} and {MOST_LIMIT}", "in": "body"}],
        )


def _check_weights(weights: Mapping[str, int | None]) -> None:
    if len(weights) > MOST_WEIGHTS:
        raise RequestInvalid(
            f"{len(weights)} weights are too many at once",
            fix=f"set at most {MOST_WEIGHTS} at a time",
            errors=[{"pointer": "/weights", "detail": f"more than {MOST_WEIGHTS}", "in": "body"}],
        )
    for tenant, weight in weights.items():
        if not is_printable(tenant):
            raise RequestInvalid(
                "a weight names what is no tenant",
                fix="give 1 to 255 printable characters",
                errors=[{"pointer": "/weights", "detail": f"{tenant!a} is no tenant", "in": "body"}],
            )
        if weight is not None and not 1 <= weight <= MOST_WEIGHT:
            raise RequestInvalid(
                f"the weight of {tenant} cannot be {weight}",
                fix=f"give a number from 1 to {MOST_WEIGHT}, or none for 1",
                errors=[{"pointer": "/weights", "detail": f"not between 1 and {MOST_WEIGHT}", "in": "body"}],
            )


def _in_the_past(until: datetime, now: datetime) -> RequestInvalid:
    return RequestInvalid(
        f"the pause would have ended at {until.isoformat()}, and it is {now.isoformat()}",
        fix="give a time in the future, or leave `until` out and resume the queue by hand",
        errors=[{"pointer": "/until", "detail": "is in the past", "in": "body"}],
    )
