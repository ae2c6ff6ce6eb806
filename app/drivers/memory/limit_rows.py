"""The rows of limits: rules by job type, held slots, buckets of rates, and what parked jobs wait for.

Values and their tables; a part of `Store`. What is done with them is `limits`'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from ...domain.job import ClaimToken, JobId, LimitKey
from ...domain.limit import KEY_KEPT, RATE, Bucket, GateReason, LimitRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A limit of a job type. `declared` is None once the newest code version has it no more."""

    declared: int | None
    per: timedelta | None
    override: int | None = None
    set_by: str | None = None

    @property
    def n(self) -> int | None:
        """Give how many there may be; None: the limit holds nobody."""
        return None if self.declared is None else self.override or self.declared


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What a code version declares of a job type; `number` is its place among those that came."""

    number: int
    rules: tuple[LimitRule, ...]
    shown_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One slot, held by a claim until its body or its worker's lease has ended."""

    name: str
    limit: LimitKey
    token: ClaimToken
    taken_at: datetime


@dataclass(slots=True)
class Limits:
    """Everything the store knows of limits."""

    rules: dict[tuple[str, str], Rule] = field(default_factory=dict)
    versions: dict[str, dict[str, Version]] = field(default_factory=dict)
    standing: dict[str, str] = field(default_factory=dict)  # of each type, the version whose rules are in force
    slots: list[Slot] = field(default_factory=list)  # in the order they were taken
    buckets: dict[tuple[str, LimitKey], Bucket] = field(default_factory=dict)
    parked: dict[JobId, GateReason] = field(default_factory=dict)

    def rule(self, name: str, limit: LimitKey) -> LimitRule | None:
        """Give the rule in force; None: there is none, and nobody is held."""
        rule = self.rules.get((name, limit.limit))
        if rule is None or rule.n is None:
            return None
        return LimitRule(limit=limit.limit, n=rule.n, per=rule.per)

    def declare(self, name: str, rules: Iterable[LimitRule]) -> None:
        """Let what a job type declares be in force; an operator's number stands."""
        declared = {rule.limit: rule for rule in rules}
        for limit in declared.keys() | {limit for of, limit in self.rules if of == name}:
            before, now = self.rules.get((name, limit)), declared.get(limit)
            self.rules[name, limit] = Rule(
                declared=None if now is None else now.n,
                per=now.per if now is not None else None if before is None else before.per,
                override=None if before is None else before.override,
                set_by=None if before is None else before.set_by,
            )

    def override(self, name: str, limit: str, n: int | None, *, by: str) -> bool:
        """Put an operator's number in the declared one's place, or take it away; False: there is no such limit."""
        rule = self.rules.get((name, limit))
        if rule is not None:
            self.rules[name, limit] = replace(rule, override=n, set_by=None if n is None else by)
        return rule is not None

    def held(self, name: str, limit: LimitKey) -> list[Slot]:
        """Give the slots of a key that are held."""
        return [slot for slot in self.slots if (slot.name, slot.limit) == (name, limit)]

    def lacks(self, name: str, limit: LimitKey, now: datetime) -> bool:
        """Say whether a key lets nobody start now."""
        rule = self.rule(name, limit)
        if rule is None:
            return False
        if rule.per is not None:
            return not self.bucket(name, limit, rule, now).has_one
        return len(self.held(name, limit)) >= rule.n

    def bucket(self, name: str, limit: LimitKey, rule: LimitRule, now: datetime) -> Bucket:
        """Give the bucket of a rate's key as it is now; one that nobody has used is full."""
        known = self.buckets.get((name, limit))
        return Bucket(float(rule.n), now) if known is None else known.filled(rule, now)

    def take(self, name: str, limits: Iterable[LimitKey], token: ClaimToken, now: datetime) -> None:
        """Take a slot of each limit, and a start of the rate, for a claim."""
        for limit in limits:
            if limit.limit != RATE:
                self.slots.append(Slot(name=name, limit=limit, token=token, taken_at=now))
            elif (rule := self.rule(name, limit)) is not None:
                self.buckets[name, limit] = self.bucket(name, limit, rule, now).takes()
            else:  # what was left of the rate that there was is of no matter to the next
                self.buckets.pop((name, limit), None)

    def forget_unused(self, now: datetime) -> None:
        """Forget buckets that nobody has taken from for long and that are full: a new one would be, too."""
        for key in list(self.unused(now)):
            del self.buckets[key]

    def unused(self, now: datetime) -> Iterator[tuple[str, LimitKey]]:
        """Name the buckets that may be forgotten."""
        for (name, limit), bucket in self.buckets.items():
            rule = self.rules.get((name, limit.limit))
            filling = timedelta() if rule is None or rule.per is None else rule.per
            if bucket.at < now - KEY_KEPT and bucket.at + filling <= now:
                yield name, limit
