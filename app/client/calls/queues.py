"""Queues: read, pause, resume, limit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from ..answers.fleet import Queue
from ..call import Answer, Call, get, get_items, path, post
from ..wire import instant


class Unchanged:
    """The type of `UNCHANGED`, which leaves a limit as it is; None takes it away."""


UNCHANGED: Final = Unchanged()
ANY_VERSION: Final = "*"


def list_queues() -> Call[tuple[Queue, ...]]:
    """Give every queue that has jobs or a setting, by name."""
    return get_items("/v1/queues", Queue)


def get_queue(name: str) -> Call[Queue]:
    """Give one queue."""
    return get(path("v1", "queues", name), Queue)


def pause_queue(name: str, *, until: datetime | None = None, reason: str | None = None) -> Call[Queue]:
    """Let no more jobs of a queue be claimed, until it is resumed or until a time."""
    return post(path("v1", "queues", name, "pause"), Queue, until=instant(until), reason=reason)


def resume_queue(name: str, *, reason: str | None = None) -> Call[Queue]:
    """End a pause."""
    return post(path("v1", "queues", name, "resume"), Queue, reason=reason)


def limit_queue(
    name: str,
    *,
    concurrency: int | Unchanged | None = UNCHANGED,
    max_depth: int | Unchanged | None = UNCHANGED,
    is_fair: bool | Unchanged = UNCHANGED,
    weights: Mapping[str, int | None] | Unchanged = UNCHANGED,
    version: str = ANY_VERSION,
) -> Call[Queue]:
    """Set how many jobs of a queue may run in the fleet, how many it takes in, and whether its tenants take turns.

    None takes a limit away, or the weight of a tenant; what is not named stays. With the `version` of a queue
    that was read it is only done while its settings are still those.

    Raises:
        ProblemError: `PRECONDITION_FAILED`: they have changed.
    """
    asked = {"concurrency": concurrency, "max_depth": max_depth, "is_fair": is_fair, "weights": weights}
    fields = {field: value for field, value in asked.items() if not isinstance(value, Unchanged)}
    where = path("v1", "queues", name)
    seen = version if version == ANY_VERSION else f'"{version}"'
    return Call(method="PATCH", path=where, read=_queue, body=fields, headers={"If-Match": seen})


def _queue(answer: Answer) -> Queue:
    return Queue.model_validate_json(answer.body)
