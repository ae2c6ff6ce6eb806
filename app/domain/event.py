"""Events: named, keyed, stored messages that runs wait for. Broadcast: taking one leaves it for others.

Values only. The order of events is the order of their `seq`, which for one (tenant, name, key) is that of their
commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NewType
from uuid import UUID

EventId = NewType("EventId", UUID)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event to emit. The id is minted before, so that an emit whose reply was lost is repeated safely.

    `payload` is validated JSON text.
    """

    id: EventId
    tenant: str
    name: str
    key: str
    payload: str
    emitted_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """The answer to an emit: how many waits it ended. `is_repeated`: this id was emitted before."""

    id: EventId
    matched: int
    is_repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """A stored event. `matched` is how many waits it ended when it was emitted."""

    id: EventId
    seq: int
    tenant: str
    name: str
    key: str
    payload: str
    emitted_at: datetime
    emitted_by: str | None
    matched: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """A filter over events, newest first. `before` is the seq a page ended with; `limit` 1 to 200."""

    tenant: str | None = None
    name: str | None = None
    key: str | None = None
    before: int | None = None
    limit: int = 50
