"""Limits and rates of a world: which jobs are under them, and the rules of what is recorded of slots and starts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from app.domain.job import LimitKey
from app.domain.limit import DEFAULT_LIMIT, RATE
from app.domain.snapshot import JobTypeDoc
from tests.faults.checkers_limits import RatedStart, Slot, never_over_held, never_too_fast
from tests.simulation.record import Rated, Slotted

if TYPE_CHECKING:
    from tests.simulation.plan import JobPlan
    from tests.simulation.tale import BodyLife, Tale
    from tests.simulation.world import Outcome

# About a third of all worlds; those of past seeds are not among them, and stay what they were.
_LIMITED = (0.45, 0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPlan:
    """How many jobs of a type and key may run at once, and begin in a time; `changes` are an operator's, by instant."""

    n: int
    keys: int
    share: float
    rate: tuple[int, float] | None
    changes: tuple[tuple[float, int], ...]

    @property
    def most(self) -> int:
        return max(self.n, *(n for _, n in self.changes), 0)

    def documents(self, names: Iterable[str]) -> list[JobTypeDoc]:
        """Give the job types that declare it."""
        policy: dict[str, object] = {"limits": [{"name": DEFAULT_LIMIT, "n": self.n, "key": None}]}
        if self.rate is not None:
            n, seconds = self.rate
            policy["rate"] = {"n": n, "per_ms": round(seconds * 1000), "key": None}
        document = json.dumps({"policy": policy})
        return [JobTypeDoc(name=name, code_version="1", document=document) for name in sorted(names)]


def limits_of(seed: int, lease: float, horizon: float) -> LimitPlan | None:
    """Draw the limits of a seed's world, or none."""
    dice = Random(f"{seed} limits")
    low, high = _LIMITED
    if not low < dice.random() < high:
        return None
    changes = sorted((dice.random() * horizon, dice.choice((1, 2, 4))) for _ in range(dice.choice((0, 0, 1, 3))))
    return LimitPlan(
        n=dice.choice((1, 1, 2, 3)),
        keys=dice.choice((1, 1, 2)),
        share=dice.choice((0.5, 1.0)),
        rate=dice.choice((None, None, (1, 0.1 * lease), (3, 0.3 * lease))),
        changes=tuple(changes),
    )


def under_limits(jobs: Iterable[JobPlan], plan: LimitPlan | None, seed: int) -> tuple[JobPlan, ...]:
    """Give jobs as they are enqueued: some of them under limits."""
    if plan is None:
        return tuple(jobs)
    dice = Random(f"{seed} limited")
    return tuple(replace(job, limits=_keys(plan, dice)) for job in jobs)


def _keys(plan: LimitPlan, dice: Random) -> tuple[LimitKey, ...]:
    if dice.random() >= plan.share:
        return ()
    slot = LimitKey(DEFAULT_LIMIT, f"key{dice.randrange(plan.keys)}")
    return (slot,) if plan.rate is None else (slot, LimitKey(RATE, ""))


def capacity(world: Outcome, tale: Tale) -> None:
    """No key is over-held at any instant, no rate is exceeded in any time; where all is calm the bodies say so too."""
    slots = [
        Slot(key=fact.key, claim=(fact.job, fact.claim_no), is_taken=fact.is_taken, may=(fact.n,))
        for fact in world.history.of(Slotted)
    ]
    never_over_held(slots)
    starts = (
        RatedStart(key=fact.key, rule=fact.n, n=fact.n, seconds=fact.seconds, began=fact.at - 1e-6, at=fact.at + 1e-6)
        for fact in world.history.of(Rated)
    )
    never_too_fast(starts)
    if world.plan.limits is not None and world.plan.is_calm:
        _bodies(world, tale, world.plan.limits.most)


def _bodies(world: Outcome, tale: Tale, most: int) -> None:
    """Where no worker loses its lease, as many bodies of a key run as may."""
    key_of = {(fact.job, fact.claim_no): fact.key for fact in world.history.of(Slotted) if fact.is_taken}
    by_key: defaultdict[str, list[BodyLife]] = defaultdict(list)
    for claim, body in tale.bodies.items():
        if claim in key_of and body.how != "sync":
            by_key[key_of[claim]].append(body)
    for key, bodies in by_key.items():
        for body in bodies:
            beside = sum(one.at <= body.at < min(one.ended_at, one.machine.over_at) for one in bodies)
            assert beside <= most, f"{beside} bodies of {key} run at {body.at}, {most} may"
