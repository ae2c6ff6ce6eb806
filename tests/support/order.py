"""The order of a run on several workers: what takes long begins in the first part of each worker's share.

Tests come in random order. One that takes a minute and comes last has everybody wait for it; short ones left over are
shared out to the end. What takes long is told by its time limit. Called by `conftest`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar

T = TypeVar("T")

# Seconds of a test's own time limit. Others share the usual one.
LONG_FROM = 100.0
_FIRST_PART = 0.6


def long_ones_first(tests: Sequence[T], limit_of: Callable[[T], float], *, workers: int) -> list[T]:
    """Give the same tests, each worker's share with its long ones among the first of it, the longest before others."""
    longest_first = sorted((test for test in tests if limit_of(test) >= LONG_FROM), key=limit_of, reverse=True)
    others = [test for test in tests if limit_of(test) < LONG_FROM]
    shares = (_mixed(longest_first[worker::workers], others[worker::workers]) for worker in range(workers))
    return list(chain.from_iterable(shares))


def _mixed(longest_first: Sequence[T], others: Sequence[T]) -> list[T]:
    """Give both, the long ones at even distances and early; the others keep their order."""
    mixed = list(others)
    step = max(1, int(_FIRST_PART * (len(longest_first) + len(others)) / max(1, len(longest_first))))
    for number, test in enumerate(longest_first):
        mixed.insert(number * step, test)
    return mixed
