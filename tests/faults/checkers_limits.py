"""The rules of limits and rates that hold for every run, as pure functions over what was recorded of slots and starts.

Recorded instants are bounds of the true ones: a decision is made after its transaction `began` and before the row it
wrote was recorded `at`. So what these rules call wrong is wrong whatever the clocks and the scheduling were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A slot taken, or given back, by a claim. `may` are the numbers that were in force while it was decided.

    None among them: for a while of it nothing was in force, and nobody was held.
    """

    key: Hashable
    claim: Hashable
    is_taken: bool
    may: Sequence[int | None] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RatedStart:
    """A start under a rate of `n` in `seconds`, decided between two instants in seconds.

    `rule` tells rates that were in force one after the other apart.
    """

    key: Hashable
    rule: Hashable
    n: int
    seconds: float
    began: float
    at: float


def never_over_held(slots: Iterable[Slot]) -> int:
    """At no instant more claims hold a key than its limit allows; gives the most that held one."""
    held: defaultdict[Hashable, set[Hashable]] = defaultdict(set)
    most = 0
    for slot in slots:
        holders = held[slot.key]
        if not slot.is_taken:
            assert slot.claim in holders, f"{slot.claim} gave a slot of {slot.key} back that it did not hold"
            holders.discard(slot.claim)
            continue
        assert slot.claim not in holders, f"{slot.claim} took two slots of {slot.key}"
        holders.add(slot.claim)
        most = max(most, len(holders))
        if None not in slot.may:
            allowed = max(number for number in slot.may if number is not None)
            assert len(holders) <= allowed, (
                f"{len(holders)} hold {slot.key}, {allowed} may: {sorted(map(str, holders))}"
            )
    return most


def never_too_fast(starts: Iterable[RatedStart]) -> int:
    """In no window more jobs of a key start than its rate allows; gives the most that did within its time.

    Of a bucket of `n` that fills evenly that is `n`, and `n` more for each time that the window is long.
    """
    by_key: defaultdict[tuple[Hashable, Hashable], list[RatedStart]] = defaultdict(list)
    for start in starts:
        by_key[start.key, start.rule].append(start)
    most = 0
    for (key, _), all_of_it in by_key.items():
        first = 0
        for number, start in enumerate(all_of_it):
            for before in range(number + 1):
                since = all_of_it[before]
                longest = max(start.at - since.began, 0.0)
                allowed = start.n * (1 + longest / start.seconds)
                count = number - before + 1
                assert count <= allowed + 1e-6, f"{count} of {key} began within {longest:.3f} s, {allowed:.2f} may"
            while start.at - all_of_it[first].at > start.seconds:
                first += 1
            most = max(most, number - first + 1)
    return most


def longest_stuck(taken: Iterable[float], struck: float) -> float:
    """Give the longest time in seconds that nobody new had a slot of a key, while jobs waited for it all the time.

    `taken` are the instants at which slots of it were taken. Whoever had it before a strike may have been lost with it:
    that wait counts from the strike on.
    """
    return max((next_ - (struck if one < struck < next_ else one) for one, next_ in pairwise(sorted(taken))), default=0)
