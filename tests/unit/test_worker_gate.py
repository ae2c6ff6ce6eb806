"""When a worker looks into the gate: no look that was planned is forgotten, and nobody looks without a reason."""

from __future__ import annotations

from datetime import timedelta

from app.domain.limit import Admitted
from app.domain.snapshot import Due
from app.worker.gate import GateWatch


class Clock:
    """A clock that is told the time."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def made(*, is_declared: bool = True) -> tuple[GateWatch, Clock, list[str]]:
    clock, news = Clock(), list[str]()
    watch = GateWatch(is_declared=is_declared, monotonic=clock, roll=lambda: 0.5, on_news=lambda: news.append("news"))
    return watch, clock, news


def wanted(watch: GateWatch) -> bool:
    return watch.is_wanted


def look(watch: GateWatch, answer: Admitted) -> None:
    watch.begins()
    watch.note(answer)


def found(*, is_gated: bool = True, admit_in: timedelta | None = None) -> Due:
    return Due(promote_in=None, must_expire=False, must_reap=False, is_gated=is_gated, admit_in=admit_in)


def test_a_look_that_a_rate_asked_for_outlives_one_that_found_nothing() -> None:
    watch, clock, _ = made()
    look(watch, Admitted(next_in=timedelta(seconds=3)))
    clock.now += 1
    watch.woken()
    look(watch, Admitted())
    assert wanted(watch) is False
    assert 2.0 <= watch.rest(10) <= 2.1
    clock.now += 2.1
    assert wanted(watch) is True
    look(watch, Admitted())
    assert wanted(watch) is False
    assert watch.rest(10) == 10


def test_a_contended_look_is_repeated_soon() -> None:
    watch, clock, _ = made()
    look(watch, Admitted(is_contended=True))
    assert wanted(watch) is False
    assert 0 < watch.rest(10) < 0.05
    clock.now += 0.05
    assert wanted(watch) is True


def test_a_worker_without_limits_looks_while_it_is_told_to() -> None:
    watch, _, news = made(is_declared=False)
    assert not watch.is_on
    watch.told(found())
    assert (watch.is_on, wanted(watch), news) == (True, True, ["news"])
    look(watch, Admitted())
    watch.told(found(is_gated=False))
    assert not watch.is_on


def test_what_maintenance_finds_parked_at_an_open_key_is_looked_at() -> None:
    watch, clock, news = made()
    look(watch, Admitted())
    watch.told(found(admit_in=timedelta()))
    assert news == ["news"]
    clock.now += 0.01
    assert wanted(watch) is True


def test_what_is_told_during_a_look_stands() -> None:
    watch, clock, _ = made()
    watch.begins()
    watch.woken()
    watch.note(Admitted())
    assert wanted(watch) is True
    look(watch, Admitted())
    assert wanted(watch) is False
    watch.begins()
    watch.told(found(admit_in=timedelta()))
    clock.now += 1
    watch.note(Admitted())
    assert wanted(watch) is True


def test_limited_jobs_get_half_of_the_room_while_others_wait() -> None:
    watch, _, _ = made()
    assert watch.most(10, has_others=False) == 10
    assert watch.most(10, has_others=True) == 5
    assert sorted(watch.most(1, has_others=True) for _ in range(4)) == [0, 0, 1, 1]
