"""Reasons that lie with a job's limits: its slots are held, or its rate lets nobody start now.

A limit is asked as the admission asks it, in the order in which the job type declares them. Called by `explain`.
"""

from __future__ import annotations

from collections.abc import Iterator

from .explain_state import instant
from .limit import LimitFacts
from .reason import Reason, ReasonCode, Situation

_HOLDERS_NAMED = 3


def of_limits(situation: Situation) -> Iterator[Reason]:
    """Give each limit that would not let the job start."""
    name = situation.job.name
    for facts in situation.limits:
        if not facts.is_free:
            yield _slot(name, facts) if facts.per is None else _rate(name, facts)


def _slot(name: str, facts: LimitFacts) -> Reason:
    named = ", ".join(str(holder) for holder in facts.holders[:_HOLDERS_NAMED])
    more = f" and {facts.held - _HOLDERS_NAMED} more" if facts.held > _HOLDERS_NAMED else ""
    return Reason(
        code=ReasonCode.SLOT,
        text=f"{facts.held} of {facts.n} slots of its limit {facts.limit!r}{_of_key(facts)} are held, by {named}{more}",
        facts={
            "limit": facts.limit,
            "key": facts.key,
            "n": facts.n,
            "held": facts.held,
            "holders": [str(holder) for holder in facts.holders],
            "before": facts.ahead,
        },
        repair=f"`outlast limits set {name} {facts.limit} N` lets more of them run;"
        f" `outlast limits slots --name {name}` shows slots that are held for nothing",
    )


def _rate(name: str, facts: LimitFacts) -> Reason:
    per_ms = None if facts.per is None else round(facts.per.total_seconds() * 1000)
    return Reason(
        code=ReasonCode.RATE,
        text=f"its rate of {facts.n} in {facts.per}{_of_key(facts)} is used up; the next may start at"
        f" {instant(facts.next_at)}",
        facts={
            "key": facts.key,
            "n": facts.n,
            "per_ms": per_ms,
            "refills_at": facts.next_at,
            "before": facts.ahead,
        },
        repair=f"`outlast limits set {name} {facts.limit} N` lets more of them start in that time",
    )


def _of_key(facts: LimitFacts) -> str:
    return f", key {facts.key!r}," if facts.key else ""
