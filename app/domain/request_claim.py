"""A request that carries a key of its own: claimed once, its effect marked in the effect's commit, its answer kept.

Values only. Two requests are the same when caller, method, path and key are; then the second gets the answer of the
first, or is refused. The mark is fenced by the claim's holder: of two processes that try the same request, one commits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NewType
from uuid import UUID

from .errors import IdempotencyInFlight, IdempotencyKeyReused
from .event import Emitted, EventId
from .job import Enqueued, JobId, RunId

RequestId = NewType("RequestId", UUID)

# How long an answer is kept, from the first request on.
REQUEST_KEPT = timedelta(hours=24)
# Past this, a request that was claimed and neither answered nor given back may be tried again: its process is gone.
REQUEST_LEASE = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest:
    """A request that asks to be done. `id` stands for caller, method, path and key, `fingerprint` for what was sent.

    `holder` is minted for every try.
    """

    id: RequestId
    holder: UUID
    fingerprint: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What an earlier try has committed before it ended without an answer: the words of the row of its audit."""

    target: str | None = None
    outcome: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_text(self) -> str:
        """Give it as JSON text, for the store."""
        words = {"target": self.target, "outcome": self.outcome, "details": dict(self.details)}
        return json.dumps(words, ensure_ascii=True, default=str)

    @classmethod
    def from_text(cls, text: str) -> Effect:
        """Read what `to_text` gave."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClaim:
    """The right to do a request. With an `effect` it is done already, and only its answer has to be given again."""

    id: RequestId
    holder: UUID
    effect: Effect | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswer:
    """The answer of a request, as it was given: status, headers, body."""

    status: int
    headers: Mapping[str, str]
    body: str


def key_reused() -> IdempotencyKeyReused:
    """Give the refusal of a key that came with another request before."""
    return IdempotencyKeyReused(
        "this Idempotency-Key was sent with another body or query within the last 24 hours",
        fix="send a new key with every new request, and the old one only to repeat a request unchanged",
    )


def in_flight() -> IdempotencyInFlight:
    """Give the refusal of a request whose first is being done."""
    return IdempotencyInFlight(
        "the first request with this Idempotency-Key is still being done",
        fix="repeat the request unchanged each second: it gets the first one's answer, or is done in its place when"
        f" that does not end within {REQUEST_LEASE.seconds} seconds, as after an outage",
    )


def stored_jobs(answers: Sequence[Enqueued]) -> Effect:
    """Give the effect of an enqueue."""
    return Effect(
        details={
            "jobs": [
                {
                    "id": str(answer.id),
                    "run_id": str(answer.run_id),
                    "deduped": answer.deduped,
                    "key_expires_at": None if answer.key_expires_at is None else answer.key_expires_at.isoformat(),
                }
                for answer in answers
            ]
        }
    )


def jobs_of(effect: Effect) -> tuple[Enqueued, ...]:
    """Give the answers an enqueue had."""
    return tuple(
        Enqueued(
            id=JobId(UUID(one["id"])),
            run_id=RunId(UUID(one["run_id"])),
            deduped=one["deduped"],
            key_expires_at=None
            if one["key_expires_at"] is None
            else datetime.fromisoformat(one["key_expires_at"]).astimezone(UTC),
        )
        for one in effect.details["jobs"]
    )


def emitted_event(emitted: Emitted) -> Effect:
    """Give the effect of an emit."""
    return Effect(target=str(emitted.id), details={"matched": emitted.matched})


def event_of(effect: Effect) -> Emitted:
    """Give the answer an emit had."""
    return Emitted(id=EventId(UUID(effect.target)), matched=effect.details["matched"])
