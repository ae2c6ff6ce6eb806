"""Jobs that leave one database for another: what is taken, what stays and why, and what the target says to each.

Values only. A move is known by an id of its own, minted when its job is taken out of the source: by it the target knows
a job that it was sent before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from .job import JobId
from .state import State
from .webhook import Callback, WebhookId
from .webhook_address import is_same_origin


class Bucket(StrEnum):
    """Where jobs that can be moved are, in the order in which they are taken."""

    READY = "ready"
    GATE = "gate"
    WAITING = "waiting"


class Stays(StrEnum):
    """Why a ready or delayed job stays where it is."""

    SLOTS = "slots"
    HANDED = "handed"
    WAITS = "waits"
    CALLED = "called"
    CARRIES = "carries"


WHY = {
    Stays.SLOTS: "holds slots of a limit here",
    Stays.HANDED: "is kept for workers of the code version that it began with",
    Stays.WAITS: "waits here for an event, a time or another job as well",
    Stays.CALLED: "is waited for by a run that stays here",
    Stays.CARRIES: "carries a delivery of a webhook of this database",
}
STAYING = (State.RUNNING, State.SUSPENDED, State.HELD)


class Verdict(StrEnum):
    """What the target says to a job it is sent."""

    MOVED = "moved"
    THERE = "there"  # it has a job of that id
    KEY_TAKEN = "key_taken"  # another job has its idempotency key there, within its window
    NO_WEBHOOK = "no_webhook"  # no single webhook there is the one that its callback names here


# With these the target has not stored the job, and it goes back to its queue, behind what is ready.
REFUSED = frozenset({Verdict.KEY_TAKEN, Verdict.NO_WEBHOOK})
WHY_REFUSED = {
    Verdict.KEY_TAKEN: "has an idempotency key that another job holds in the target",
    Verdict.NO_WEBHOOK: "calls back a webhook, and no single one of its label (and origin) is there: leave exactly one",
}


class Moving(NamedTuple):
    """A job on its way. `document` is the whole of it, as JSON text."""

    id: UUID
    job_id: JobId
    name: str
    document: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One step of taking jobs out: how many, how many stayed and why, and where to go on; None: the bucket is done."""

    taken: int
    stayed: Mapping[Stays, int] = field(default_factory=dict)
    after: tuple[object, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveCount:
    """Live jobs before a move: those that go as far as is known, those that stay, and those on their way since before.

    Jobs that stay for one of the reasons of `Stays` are found when it is their turn.
    """

    going: Mapping[State, int]
    staying: Mapping[State, int]
    on_the_way: int


class Receiver(NamedTuple):
    """A webhook as a move tells it from others of its tenant. Ids and secrets are a database's own."""

    id: str
    label: str
    url: str


def callback_there(callback: str, was: Receiver | None, there: Sequence[Receiver]) -> str | None:
    """Give a job's callback for the store it goes to: the webhook of the same label, of several that of the same URL.

    One that has the webhook's own id is as it was, and so is one whose webhook is gone: nobody would be told here
    either. None without a webhook that could be told.
    """
    asked = Callback.of(callback)
    if was is None or any(one.id == asked.webhook for one in there):
        return callback
    alike = [one for one in there if one.label == was.label]
    if asked.url is not None:
        alike = [one for one in alike if is_same_origin(asked.url, one.url)]
    if len(alike) > 1:
        alike = [one for one in alike if one.url == was.url]
    if len(alike) != 1:
        return None
    return Callback(webhook=WebhookId(alike[0].id), url=asked.url, ends=asked.ends).text()
