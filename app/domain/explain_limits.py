"""Reasons that a job's own limits and its rate give: held slots, and starts that are used up.

The facts are those that an admission decides by, and `LimitFacts.is_free` is its word. Called by `explain`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from .explain_state import instant
from .limit import LimitFacts
from .reason import Reason, ReasonCode, Situation

_NAMED = 3


def of_limits(situation: Situation) -> Iterator[Reason]:
    """Give what keeps the job from starting, in the order of its limits."""
    name = situation.job.name
    for facts in situation.limits:
        if not facts.is_free:
            yield _slot(name, facts) if facts.per is None else _rate(name, facts, facts.per)


def _slot(name: str, facts: LimitFacts) -> Reason:
    named = ", ".join(map(str, facts.holders[:_NAMED])) + (", …" if len(facts.holders) > _NAMED else "")
    by = f", by {named}" if named else ""
    return Reason(
        code=ReasonCode.SLOT,
        text=f"{facts.held} of {facts.n} slots of its limit {facts.limit!r}{_of_key(facts)} are held{by}",
        facts={
            "limit": facts.limit,
            "key": facts.key,
            "n": facts.n,
            "held": facts.held,
            "holders": [str(holder) for holder in facts.holders],
            "ahead": facts.ahead,
        },
        repair=f"`outlast limits set {name} {facts.limit} N` lets more of them run; a slot whose body is gone for good"
        " comes back with `outlast limits release JOB_ID`",
    )


def _rate(name: str, facts: LimitFacts, per: timedelta) -> Reason:
    return Reason(
        code=ReasonCode.RATE,
        text=f"its rate of {facts.n} in {per.total_seconds():g} s{_of_key(facts)} is used up; the next may start at"
        f" {instant(facts.next_at)}",
        facts={
            "key": facts.key,
            "n": facts.n,
            "per_ms": per // timedelta(milliseconds=1),
            "next_at": facts.next_at,
            "ahead": facts.ahead,
        },
        repair=f"`outlast limits set {name} {facts.limit} N` lets more of them begin",
    )


def _of_key(facts: LimitFacts) -> str:
    return f" for {facts.key!a}" if facts.key else ""
