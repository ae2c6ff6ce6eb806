"""What a job type declares of its limits: how many of a key may run at once, and how many may start in a time.

Checked when they are made; keys are templates or functions of the payload, as idempotency keys are. Read by policy,
describe and job types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from ..domain.errors import SettingsInvalid
from ..domain.job import LONGEST_DURATION, SHORTEST_DURATION
from ..domain.limit import DEFAULT_LIMIT, MOST_LIMITS, MOST_SLOTS, RATE
from .template import parse_template

# As `policy.Rule`, which this module comes before.
Key: TypeAlias = str | Callable[[Any], str] | None


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `n` jobs of the type at once, in the whole fleet; with a `key`, at most `n` of each.

    A type with several names each. `n` is what the newest published code says; the key is made when a job is enqueued.
    """

    n: int
    key: Key = None
    name: str = DEFAULT_LIMIT

    def __post_init__(self) -> None:
        _refuse_number("Limit", self.n)
        _refuse_key("Limit", self.key)
        if self.name == RATE:
            raise SettingsInvalid(f"Limit(name={RATE!r}) is the name of the rate", fix="give the limit another name")


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `n` jobs of the type begin in any `per`, in the whole fleet; with a `key`, at most `n` of each.

    A bucket of `n` starts that fills evenly: after a pause `n` may start at once, then one every `per / n`. Every start
    counts, also of a retry, and of a run that comes back after it waited.
    """

    n: int
    per: timedelta
    key: Key = None

    def __post_init__(self) -> None:
        _refuse_number("Rate", self.n)
        _refuse_key("Rate", self.key)
        per: object = self.per
        if not isinstance(per, timedelta) or not SHORTEST_DURATION <= per <= LONGEST_DURATION:
            raise SettingsInvalid(
                f"Rate(per={self.per!r}) cannot work", fix="per must be a timedelta from one millisecond to five years"
            )


def refuse_limits(limits: object, rate: object, is_name: Callable[[object], bool]) -> None:
    """Refuse a policy's limits where they cannot work together.

    Raises:
        SettingsInvalid: one is of another type, or two have one name.
    """
    if not isinstance(limits, list | tuple) or not all(isinstance(limit, Limit) for limit in limits):
        raise SettingsInvalid(f"limits={limits!r} cannot work", fix="limits must be a list of Limit(n, key=…)")
    if rate is not None and not isinstance(rate, Rate):
        raise SettingsInvalid(f"rate={rate!r} cannot work", fix="rate must be a Rate(n, per=timedelta(…), key=…)")
    if len(limits) > MOST_LIMITS:
        raise SettingsInvalid(f"{len(limits)} limits are too many", fix=f"declare at most {MOST_LIMITS} of a job type")
    names = [limit.name for limit in limits if isinstance(limit, Limit)]
    for name in names:
        if not is_name(name):
            raise SettingsInvalid(f"Limit(name={name!r}) cannot work", fix="name it like a queue: a-z, 0-9 and _.:-")
    if len(set(names)) < len(names):
        raise SettingsInvalid(
            "two limits of one job type have the same name",
            fix="give each a name: Limit(4, key='{shop}', name='per-shop')",
        )


def _refuse_number(what: str, n: object) -> None:
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MOST_SLOTS:
        raise SettingsInvalid(f"{what}({n!r}) cannot work", fix=f"n must be a whole number from 1 to {MOST_SLOTS}")


def _refuse_key(what: str, key: object) -> None:
    if isinstance(key, str):
        parse_template(key)
    elif key is not None and not callable(key):
        raise SettingsInvalid(
            f"{what}(key={key!r}) cannot work", fix="key must be a template or a function of the payload"
        )
