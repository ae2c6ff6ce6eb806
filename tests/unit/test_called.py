from __future__ import annotations

from uuid import UUID

from app.domain.job import JobId
from app.drivers.postgres.called import Called

ONE, OTHER = JobId(UUID(int=1)), JobId(UUID(int=2))


def test_jobs_are_kept_in_mind_for_an_hour_from_the_last_call() -> None:
    now = [0.0]
    called = Called(monotonic=lambda: now[0])
    called.add([ONE, OTHER])
    now[0] = 3599.0
    called.add([ONE])
    assert called.now() == [OTHER, ONE]
    now[0] = 3600.0
    assert called.now() == [ONE]
    called.drop([ONE, OTHER])
    assert called.now() == []


def test_beyond_a_thousand_the_oldest_is_forgotten() -> None:
    called = Called(monotonic=lambda: 0.0)
    called.add([ONE])
    called.add(JobId(UUID(int=number)) for number in range(2, 1002))
    assert len(called.now()) == 1000
    assert ONE not in called.now()
