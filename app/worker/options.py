"""How a worker is set up: which queues, how many jobs at once, and the intervals it lives by.

Values that cannot work together are refused when made. Read by everything in this folder; built by the composition
root from the settings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from ..domain.errors import SettingsInvalid
from ..domain.job import DEFAULT_QUEUE, NAME_PATTERN
from ..domain.retention import Retention

MAX_CONCURRENCY = 10_000

_POLL_LISTENING_SECONDS = 10.0  # the floor under wake-ups that can be lost
_POLL_BLIND_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimit:
    """A queue to serve and how many of its jobs may run here at once; None: as many as the worker has places."""

    queue: str
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """A worker's set-up. `poll` replaces both polling intervals, with wake-ups and without.

    `alone_after` is how long a job that must run alone waits for an empty worker before one is made empty for it.
    `start` is how long a start goes on while its store is away or cuts its calls.
    `purge_every` is the least time between two rounds over rows that may be over, which are kept for `retention`.
    `callback_queue` is where ends that are to be told are handed on to.
    `drain` is the time for a drain that is asked for through the store, of a worker that leaves by itself.
    """

    queues: tuple[QueueLimit, ...] = (QueueLimit(queue=DEFAULT_QUEUE),)
    concurrency: int = 10
    lease: timedelta = timedelta(seconds=30)
    heartbeat: timedelta = timedelta(seconds=5)
    sweep: timedelta = timedelta(seconds=5)
    poll: timedelta | None = None
    loop_stall: timedelta = timedelta(seconds=60)
    start: timedelta = timedelta(seconds=5)
    drain: timedelta = timedelta(seconds=25)
    cancel_grace: timedelta = timedelta(seconds=2)
    alone_after: timedelta = timedelta(seconds=30)
    stats_every: timedelta = timedelta(seconds=15)
    purge_every: timedelta = timedelta(seconds=60)
    retention: Retention = Retention()  # noqa: RUF009 # frozen
    result_max_bytes: int = 1024 * 1024
    callback_queue: str = DEFAULT_QUEUE
    code_version: str = ""
    host: str = ""
    pid: int = 0

    def __post_init__(self) -> None:
        zero = timedelta()
        names = [share.queue for share in self.queues]
        checks = (
            ("queues", bool(names), "name at least one queue"),
            ("queues", len(set(names)) == len(names), "name each queue once"),
            ("concurrency", 1 <= self.concurrency <= MAX_CONCURRENCY, f"take 1 to {MAX_CONCURRENCY}"),
            ("lease", self.lease > zero, "make it longer than zero"),
            ("heartbeat", zero < self.heartbeat <= self.lease / 3, "make it longer than zero and at most lease / 3"),
            ("sweep", self.sweep > zero, "make it longer than zero"),
            ("poll", self.poll is None or self.poll > zero, "make it longer than zero"),
            ("loop_stall", self.loop_stall > zero, "make it longer than zero"),
            ("start", self.start >= zero, "make it zero or longer"),
            ("cancel_grace", self.cancel_grace >= zero, "make it zero or longer"),
            ("alone_after", self.alone_after >= zero, "make it zero or longer"),
            ("stats_every", self.stats_every > zero, "make it longer than zero"),
            ("purge_every", self.purge_every > zero, "make it longer than zero"),
            ("callback_queue", bool(re.fullmatch(NAME_PATTERN, self.callback_queue)), f"match {NAME_PATTERN}"),
            ("result_max_bytes", self.result_max_bytes > 0, "make it at least 1"),
        )
        for name, holds, rule in checks:
            if not holds:
                raise SettingsInvalid(f"the worker's {name}={getattr(self, name)} cannot work", fix=rule)

    def poll_seconds(self, *, is_listening: bool) -> float:
        """Give how long to wait for a wake-up before looking anyway."""
        if self.poll is not None:
            return self.poll.total_seconds()
        return _POLL_LISTENING_SECONDS if is_listening else _POLL_BLIND_SECONDS


def parse_queues(text: str) -> tuple[QueueLimit, ...]:
    """Read `a:10,b:5,c`: queue names, each with an optional number of places.

    Raises:
        SettingsInvalid: a name or number cannot be one, or a queue is named twice.
    """
    shares: dict[str, QueueLimit] = {}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        name, has_limit, number = part.rpartition(":") if re.search(r":-?\d*$", part) else (part, "", "")
        if not re.fullmatch(NAME_PATTERN, name) or (has_limit and not number) or name in shares:
            raise _unreadable(part)
        limit = int(number) if number else None
        if limit is not None and not 1 <= limit <= MAX_CONCURRENCY:
            raise _unreadable(part)
        shares[name] = QueueLimit(queue=name, limit=limit)
    if not shares:
        raise SettingsInvalid("no queue is named", fix="name queues like 'default' or 'mail:10,reports:2'")
    return tuple(shares.values())


def _unreadable(part: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"{part!r} in the list of queues cannot be read",
        fix=f"write each queue once, like 'mail' or 'mail:10', with 1 to {MAX_CONCURRENCY} places",
    )
