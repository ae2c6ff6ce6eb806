"""Turns, reckoned: by weight, nobody behind for good, and the same told as done."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from app.domain.turns import Lined, Turn, ahead_of, in_turns


def line(tenant: str, count: int, *, start: float = 0.0, weight: int = 1, first: int = 0) -> list[Lined[str]]:
    return [Lined((11, first + number), tenant, start, weight, tenant) for number in range(count)]


def order(*lines: list[Lined[str]]) -> str:
    return "".join(one.job for one in in_turns([job for jobs in lines for job in jobs]))


def test_the_one_furthest_behind_is_next_and_of_two_alike_the_older() -> None:
    assert order(line("a", 3), line("b", 3, first=10)) == "ababab"
    assert order(line("a", 3, first=10), line("b", 3)) == "bababa"
    assert order(line("a", 2, start=5.0), line("b", 3, start=3.0, first=10)) == "bbaba"


def test_weights_are_shares_of_starts() -> None:
    assert order(line("a", 2), line("b", 6, weight=3, first=10)) == "abbbabbb"
    # Thirds that are no numbers of two are still at one time with a whole.
    assert Counter(order(line("a", 100), line("b", 300, weight=3, first=1000))[:200]) == {"a": 50, "b": 150}


def test_jobs_share_the_places_they_have() -> None:
    placed = in_turns([*line("a", 2), Lined((3, 90), "b", 0.0, 1, "b")])
    assert [(one.place, one.job) for one in placed] == [((3, 90), "b"), ((11, 0), "a"), ((11, 1), "a")]


def test_a_turn_goes_on_and_never_back() -> None:
    turn = Turn(weight=2)
    assert (turn.share, Turn().share, turn.begins(3.0)) == (2, 1, 3.0)
    turn = turn.moved(3.0, 4)
    assert (turn.finish, turn.started) == (5.0, 4.5)
    # A start that was reckoned from a time that is over counts from where the turn is.
    later = turn.moved(1.0, 2)
    assert (later.finish, later.started) == (6.0, 5.5)


WAITING = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 5), st.floats(0, 4, allow_nan=False).map(lambda at: round(at, 2))),
    min_size=1,
    max_size=4,
)


@given(WAITING)
def test_what_is_said_to_be_ahead_is_what_begins_before(tenants: list[tuple[int, int, float]]) -> None:
    lines = {str(n): line(str(n), count, start=at, weight=w, first=100 * n) for n, (count, w, at) in enumerate(tenants)}
    waiting = [
        Lined(one.place, one.tenant, one.start, one.weight, one.place) for jobs in lines.values() for one in jobs
    ]
    begun = [one.job for one in in_turns(waiting)]
    for tenant, jobs in lines.items():
        for own, one in enumerate(jobs):
            tag = one.start + own / one.weight
            before = own
            for other, theirs in lines.items():
                if other != tenant:
                    count, is_just_then = ahead_of(tag, start=theirs[0].start, weight=theirs[0].weight)
                    before += min(count, len(theirs))
                    before += is_just_then and count < len(theirs) and theirs[count].place < one.place
            assert before == begun.index(one.place)
