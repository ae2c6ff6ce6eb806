"""What a seed stands for: the settings of a fleet, the jobs that are asked for, and what is done to it when.

Every seed draws which kinds of trouble it has, so that each also meets a fleet in which nothing else goes wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any, Literal

from app.domain.job import LimitKey
from app.domain.retry import RetryPolicy
from app.worker.options import QueueLimit, WorkerOptions
from tests.simulation.limits import LimitPlan, limits_of, under_limits
from tests.simulation.link import Odds

QUEUES = ("default", "other")
RETRIES = RetryPolicy(backoff=timedelta(milliseconds=50), factor=2.0, max_backoff=timedelta(milliseconds=400))

Way = Literal[
    "finish", "heed", "ignore", "swallow", "stubborn", "fail", "terminal", "retry_after", "snooze", "exit",
    "unstorable", "refused", "poison", "spawn",
]  # fmt: skip
Deed = Literal["kill", "freeze", "sleep", "jump", "drain", "hurry", "cut", "away", "cancel", "retry", "pause"]

_WAYS: tuple[tuple[Way, float], ...] = (
    ("finish", 6), ("heed", 4), ("ignore", 3), ("swallow", 2), ("stubborn", 1), ("fail", 4), ("terminal", 0.7),
    ("retry_after", 1.5), ("snooze", 2), ("exit", 0.7), ("unstorable", 0.7), ("refused", 0.7), ("poison", 0.8),
    ("spawn", 1),
)  # fmt: skip
_DEEDS: tuple[tuple[Deed, float], ...] = (
    ("kill", 3), ("freeze", 3), ("sleep", 1), ("jump", 1), ("drain", 5), ("hurry", 1), ("cut", 4), ("away", 1.5),
    ("cancel", 4), ("retry", 3), ("pause", 1),
)  # fmt: skip
_LASTING: tuple[Way, ...] = ("finish", "heed", "ignore", "swallow", "stubborn", "fail", "snooze")
_SORE = (
    ("claim", "settle_and_claim", "reconcile"),
    ("claim", "settle_and_claim", "reconcile"),
    ("settle", "settle_and_claim"), ("claim", "settle_and_claim"), ("renew",), ("renew", "surrender"),
    ("renew", "settle", "settle_and_claim"), ("renew", "open_heartbeat"),
    ("reconcile", "database_time"), ("isolate", "release"), ("register_worker", "surrender"),
    ("abandon", "close_worker", "open_heartbeat"), ("reap", "promote", "expire", "due"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What a body does in one of its starts, and for how long."""

    way: Way
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """A job that is asked for at an instant; after the last act of its script it finishes at once.

    Jobs of one `key` share an idempotency key. A `publisher` is a source that asks again under a new id until answered.
    """

    at: float
    kind: Literal["sim.async", "sim.signal", "sim.sync", "sim.steps"]
    script: tuple[Act, ...]
    queue: str
    priority: int
    max_attempts: int
    max_crashes: int
    key: str | None = None
    publisher: bool = False
    delay: float | None = None
    timeout: float | None = None
    deadline: float | None = None
    max_queue_time: float | None = None
    news_at: float | None = None
    limits: tuple[LimitKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeedPlan:
    """What is done at an instant, and for how long it lasts; `lot` in [0, 1) says to whom."""

    at: float
    what: Deed
    seconds: float
    lot: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is decided about a world before it begins. Seconds of virtual time."""

    seed: int
    lease: float
    drain: float
    horizon: float
    fleet: int
    embedded: float  # how likely a machine is a program that starts and stops a worker of its own again and again
    options: WorkerOptions
    odds: Odds
    patience: float
    jobs: tuple[JobPlan, ...]
    deeds: tuple[DeedPlan, ...]
    limits: LimitPlan | None = None

    @property
    def is_calm(self) -> bool:
        """Say whether nothing ever happens that can cost a worker its lease, or a reply."""
        rough = {"kill", "freeze", "sleep", "jump", "cut", "away"}
        poisoned = any(act.way == "poison" for job in self.jobs for act in job.script)
        return self.odds == Odds() and not poisoned and not any(deed.what in rough for deed in self.deeds)


def plan_of(seed: int) -> Plan:
    """Draw the plan of a seed."""
    dice = Random(f"{seed} plan")
    lease = dice.uniform(1.0, 2.0)
    horizon = lease * dice.uniform(2.0, 3.5)
    drain = dice.uniform(0.2, 1.2) * lease
    limits = limits_of(seed, lease, horizon)
    return Plan(
        seed=seed,
        lease=lease,
        drain=drain,
        horizon=horizon,
        fleet=dice.choice((1, 2, 2, 3)),
        embedded=dice.choice((0.0, 0.0, 0.3, 1.0)),
        options=_options(dice, lease),
        odds=_odds(dice, lease),
        patience=dice.uniform(0.1, 0.7) * lease,
        jobs=under_limits((*_jobs(dice, lease, horizon), *_runs(Random(f"{seed} runs"), lease, horizon)), limits, seed),
        deeds=tuple(_deeds(dice, lease, horizon)),
        limits=limits,
    )


def _options(dice: Random, lease: float) -> WorkerOptions:
    concurrency = dice.choice((1, 2, 3, 8))
    return WorkerOptions(
        queues=(QueueLimit(queue="default"), QueueLimit(queue="other", limit=dice.choice((None, 1, 2)))),
        concurrency=concurrency,
        lease=timedelta(seconds=lease),
        heartbeat=timedelta(seconds=lease / dice.uniform(3.001, 5)),
        sweep=timedelta(seconds=lease / dice.uniform(2, 6)),
        poll=dice.choice((None, timedelta(seconds=0.3))),
        cancel_grace=timedelta(seconds=dice.choice((0.0, 0.1, 0.3))),
        alone_after=timedelta(seconds=dice.uniform(0.0, lease)),
        stats_every=timedelta(seconds=lease),
        code_version="1",
        host="host",
        pid=1,
    )


def _odds(dice: Random, lease: float) -> Odds:
    """Draw how bad the lines are: not at all, in one way, badly or slowly for some verbs alone, or in all ways."""
    rates: dict[str, Any] = {
        name: dice.choice((0.01, 0.05, 0.15)) for name in ("before", "after", "hang", "late", "broken", "slow")
    }
    name, only = dice.choice((*rates, "late")), dice.choice(_SORE)
    slow_seconds, deaf = lease * dice.choice((0.05, 0.4, 1.2)), dice.choice((0.0, 0.3, 1.0))
    match dice.choice(("none", "one", "sore", "sluggish", "all")):
        case "none":
            return Odds()
        case "one":
            return replace(Odds(slow_seconds=slow_seconds, deaf=deaf), **dict[str, Any]({name: 2 * rates[name]}))
        case "sore":
            sore = Odds(slow=dice.choice((0.0, 0.3)), slow_seconds=slow_seconds, deaf=deaf, only=only)
            return replace(sore, **dict[str, Any]({name: dice.choice((0.3, 0.6, 0.9))}))
        case "sluggish":
            slow_seconds = lease * dice.choice((0.15, 0.3, 0.6))
            return Odds(slow=0.7, slow_seconds=slow_seconds, deaf=deaf, only=dice.choice((only, ("renew",))))
        case _:
            thirds: dict[str, Any] = {each: rate / 3 for each, rate in rates.items()}
            return Odds(**thirds, slow_seconds=slow_seconds, deaf=deaf)


def _jobs(dice: Random, lease: float, horizon: float) -> list[JobPlan]:
    ways = [(way, weight) for way, weight in _WAYS if dice.random() < 0.6] or list(_WAYS)
    keys = [f"key{number}" for number in range(dice.choice((0, 0, 1, 2)))]
    jobs = [_job(dice, lease, horizon, ways, keys) for _ in range(dice.randint(4, 13))]
    return jobs + [_long_job(dice, lease, horizon, job) for job in jobs[: dice.choice((0, 1, 3))]]


def _runs(dice: Random, lease: float, horizon: float) -> list[JobPlan]:
    """Draw jobs with steps, each with an instant at which the event comes that it waits for, or none."""
    ways = [(way, weight) for way, weight in _WAYS if way not in {"refused", "unstorable"}]
    drawn = [_job(dice, lease, horizon, ways, []) for _ in range(dice.choice((0, 1, 2, 4)))]
    return [
        replace(job, kind="sim.steps", news_at=dice.choice((None, job.at + dice.random() * lease))) for job in drawn
    ]


def _job(dice: Random, lease: float, horizon: float, ways: list[tuple[Way, float]], keys: list[str]) -> JobPlan:
    def maybe(odds: float, low: float, high: float) -> float | None:
        return dice.uniform(low, high) if dice.random() < odds else None

    names, weights = zip(*ways, strict=True)
    script = tuple(
        Act(way=way, seconds=dice.choice((0.0, 0.05, 0.3, lease)) * dice.random())
        for way in dice.choices(names, weights, k=dice.choice((0, 1, 1, 2, 3, 4)))
    )
    return JobPlan(
        at=dice.random() * horizon * 0.8,
        kind=dice.choice(("sim.async", "sim.async", "sim.async", "sim.signal", "sim.sync")),
        script=script,
        queue=dice.choice(("default", "default", "other")),
        priority=dice.choice((3, 5, 5, 5, 7)),
        max_attempts=dice.choice((1, 2, 3, 25)),
        max_crashes=dice.choice((1, 2, 3, 3)),
        key=dice.choice(keys) if keys and dice.random() < 0.5 else None,
        publisher=dice.random() < 0.2,
        delay=maybe(0.15, 0.0, lease),
        timeout=maybe(0.2, 0.05, 0.8 * lease),
        deadline=maybe(0.1, 0.1, 2 * lease),
        max_queue_time=maybe(0.1, 0.1, 2 * lease),
    )


def _long_job(dice: Random, lease: float, horizon: float, like: JobPlan) -> JobPlan:
    """Draw a job whose first start lasts about as long as a lease, which most trouble then finds running."""
    act = Act(way=dice.choice(_LASTING), seconds=dice.uniform(0.8, 2.5) * lease)
    timeout = like.timeout if dice.random() < 0.3 else None
    return replace(like, at=dice.random() * horizon * 0.6, script=(act, *like.script), key=None, timeout=timeout)


def _deeds(dice: Random, lease: float, horizon: float) -> list[DeedPlan]:
    kinds = [(what, weight) for what, weight in _DEEDS if dice.random() < 0.4]
    if not kinds:
        return []
    names, weights = zip(*kinds, strict=True)
    deeds = [
        DeedPlan(
            at=dice.random() * horizon,
            what=what,
            seconds=dice.choice((0.1, 0.5, 1.3, 2.5)) * lease * dice.uniform(0.5, 1.0),
            lot=dice.random(),
        )
        for what in dice.choices(names, weights, k=dice.choice((1, 2, 4, 8, 12)))
    ]
    return sorted(deeds, key=lambda deed: deed.at)
