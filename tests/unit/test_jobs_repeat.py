"""Writes whose outcome is unknown: repeated under the ids they had, for a while, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from app.domain.errors import DriverUnavailable, JobDuplicate
from app.domain.job import Enqueued, NewJob
from app.jobs import Client, job, use_client
from app.steps.repeat import until_known
from tests.unit.jobs_fakes import RememberingStore


@job("a.job")
async def work(number: int) -> None: ...


class LosingStore(RememberingStore):
    """Stores each job and loses the first `lost` replies."""

    def __init__(self, *, lost: int) -> None:
        super().__init__()
        self.lost = lost

    async def enqueue(self, job: NewJob) -> Enqueued:
        answer = await super().enqueue(job)
        self._lose()
        return answer

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        self.batches += 1
        answers = tuple([await RememberingStore.enqueue(self, each) for each in jobs])
        self._lose()
        return answers

    def _lose(self) -> None:
        if self.lost:
            self.lost -= 1
            raise DriverUnavailable("the connection broke", fix="try again")


class FailingWrite:
    """A write that fails in one way whenever it is called."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    async def __call__(self) -> None:
        self.calls += 1
        raise self.error


async def test_an_enqueue_whose_reply_was_lost_is_repeated_under_its_id() -> None:
    store = LosingStore(lost=2)
    with use_client(Client(store.driver)):
        answer = await work.enqueue({"number": 1})
    assert [each.id for each in store.jobs] == [answer.id] * 3


async def test_many_whose_reply_was_lost_are_repeated_under_their_ids() -> None:
    store = LosingStore(lost=1)
    with use_client(Client(store.driver)):
        answers = await work.enqueue_many([{"number": 1}, {"number": 2}])
    assert [each.id for each in store.jobs] == [each.id for each in answers] * 2
    assert len({each.id for each in answers}) == 2


async def test_patience_ends_and_then_the_outcome_is_unknown() -> None:
    write = FailingWrite(DriverUnavailable("the connection broke", fix="try again"))
    clock = asyncio.get_running_loop().time
    began = clock()
    with pytest.raises(DriverUnavailable):
        await until_known(write, patience_seconds=0.2)
    assert write.calls == 3, "after 0, 50 and 150 ms; the next would be at 350"
    assert clock() - began < 2


async def test_a_write_is_repeated_once_even_without_patience() -> None:
    write = FailingWrite(DriverUnavailable("the connection broke", fix="try again"))
    with pytest.raises(DriverUnavailable):
        await until_known(write, patience_seconds=0)
    assert write.calls == 2


async def test_an_answer_that_refuses_is_an_answer() -> None:
    write = FailingWrite(JobDuplicate("taken", fix="use another key"))
    with pytest.raises(JobDuplicate):
        await until_known(write)
    assert write.calls == 1


async def test_a_driver_that_was_closed_is_not_asked_again() -> None:
    write = FailingWrite(DriverUnavailable("the driver was closed: it is not stored", fix="open one", is_closed=True))
    with pytest.raises(DriverUnavailable, match="is not stored"):
        await until_known(write)
    assert write.calls == 1


async def test_a_driver_closed_between_two_tries_leaves_the_outcome_of_the_first_unknown() -> None:
    errors = [
        DriverUnavailable("the connection broke", fix="try again"),
        DriverUnavailable("the driver was closed: it is not stored", fix="open one", is_closed=True),
    ]

    async def write() -> None:
        raise errors.pop(0)

    with pytest.raises(DriverUnavailable, match="the connection broke"):
        await until_known(write)
    assert errors == []
