"""Cron times against an enumerator of our own, over years of five zones whose clocks change in every way there is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import takewhile
from random import Random

import pytest

from app.domain.errors import ScheduleInvalid
from app.jobs.cron import Cron
from tests.support.cron_read import expression_of
from tests.support.cron_walk import ZONES, Expression, Run, enumerated, random_expression, walk

EXPRESSIONS = 200
FIRST_YEAR, LAST_YEAR = 2020, 2035
# Around a change of the clock enough is walked for every expression to have both sides of it.
EDGE = timedelta(days=2)


def expressions() -> list[Expression]:
    rng = Random(20_201_231)
    made: list[Expression] = []
    while len(made) < EXPRESSIONS:
        expression = random_expression(rng)
        try:
            Cron(expression.text, "UTC")
        except ScheduleInvalid:
            continue  # 31 November: refused, which is shown elsewhere
        made.append(expression)
    return made


@cache
def walked(zone: str, first_year: int, last_year: int) -> list[Run]:
    return walk(zone, datetime(first_year, 1, 1, tzinfo=UTC), datetime(last_year + 1, 1, 1, tzinfo=UTC))


def compare(zone: str, expression: Expression, first_year: int, last_year: int) -> int:
    """Compare missing and extra times, but for the edges, where a walk cannot know what came before."""
    start, end = datetime(first_year, 1, 1, tzinfo=UTC) + EDGE, datetime(last_year + 1, 1, 1, tzinfo=UTC) - EDGE
    runs = walked(zone, first_year, last_year)
    wanted = [at for at in enumerated(expression, runs) if start < at < end]
    found = list(takewhile(lambda at: at < end, Cron(expression.text, zone).after(start)))
    assert found == wanted, (zone, expression.text, sorted(set(found) ^ set(wanted))[:5])
    return len(found)


def test_what_reads_expressions_for_the_enumerator_reads_them_as_they_were_made() -> None:
    for expression in expressions():
        assert expression_of(expression.text) == expression


@pytest.mark.parametrize("zone", ZONES)
def test_a_sample_of_expressions_has_no_time_missing_and_none_extra(zone: str) -> None:
    year = Random(zone).randint(FIRST_YEAR, LAST_YEAR)
    sample = Random(zone).sample(expressions(), 40)
    assert sum(compare(zone, expression, year, year) for expression in sample)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("zone", ZONES)
def test_no_time_of_sixteen_years_is_missing_and_none_extra(zone: str) -> None:
    for expression in expressions():
        compare(zone, expression, FIRST_YEAR, LAST_YEAR)


def test_times_can_be_asked_for_from_anywhere_and_go_on_the_same() -> None:
    rng = Random(7)
    for expression in rng.sample(expressions(), 20):
        zone = rng.choice(ZONES)
        cron = Cron(expression.text, zone)
        some = cron.next(datetime(2024, 1, 1, tzinfo=UTC), 60)
        for place in range(0, len(some) - 1, 7):
            assert cron.next(some[place], 1) == [some[place + 1]]
            assert cron.next(some[place + 1] - timedelta(seconds=1), 1) == [some[place + 1]]
        assert cron.newest(some[0], some[-1], 10) == some[1:][-10:]
