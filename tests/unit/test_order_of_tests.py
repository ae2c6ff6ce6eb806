from __future__ import annotations

import random

from tests.support.order import long_ones_first

WORKERS = 4


def test_the_long_ones_begin_early_in_every_share_and_none_is_lost() -> None:
    tests = [(number, 300.0 if number < 10 else 120.0 if number < 40 else 20.0) for number in range(1_000)]
    random.Random(1).shuffle(tests)
    ordered = long_ones_first(tests, lambda test: test[1], workers=WORKERS)
    assert sorted(ordered) == sorted(tests)
    size = len(tests) // WORKERS
    for share in (ordered[first : first + size] for first in range(0, len(tests), size)):
        places = [place for place, (_, limit) in enumerate(share) if limit >= 100]
        limits = [share[place][1] for place in places]
        assert len(places) in {10, 11}
        assert places[0] == 0
        assert places[-1] < 0.6 * size
        assert limits == sorted(limits, reverse=True)


def test_others_keep_their_order_and_one_worker_or_no_long_test_changes_nothing_else() -> None:
    tests = [(3, 20.0), (1, 20.0), (2, 20.0)]
    assert long_ones_first(tests, lambda test: test[1], workers=1) == tests
    assert long_ones_first([], lambda test: test[1], workers=WORKERS) == []
    assert long_ones_first([(0, 300.0)], lambda test: test[1], workers=WORKERS) == [(0, 300.0)]
