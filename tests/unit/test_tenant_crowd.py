"""When a tenant is counted, and who is let in between two counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import cast

import pytest

from app.control.crowd import FRESH_SECONDS, TenantCrowd
from app.domain.errors import DriverUnavailable, TenantFull
from app.drivers.protocol import JobDriver
from tests.support.drivers import new_job


class Store:
    """What a driver would count, and how often it was asked; `takes` seconds each time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.takes = 0.0
        self.waiting = Counter[str]()
        self.asked: list[str] = []
        self.error: Exception | None = None

    def monotonic(self) -> float:
        return self.now

    async def count_waiting(self, tenant: str, most: int) -> int:
        self.asked.append(tenant)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.now += self.takes
        return min(most, self.waiting[tenant])

    def crowd(self, most: int | None) -> TenantCrowd:
        return TenantCrowd(cast("JobDriver", self), most, monotonic=self.monotonic)


async def test_without_a_number_nobody_is_counted() -> None:
    store = Store()
    await store.crowd(None).let_in([new_job()] * 1000)
    assert store.asked == []


async def test_what_was_let_in_since_a_count_is_added_to_it() -> None:
    store = Store()
    store.waiting["a"] = 3
    crowd = store.crowd(5)
    for _ in range(2):
        await crowd.let_in([new_job(tenant="a")])
    with pytest.raises(TenantFull, match="5 jobs of tenant 'a' wait, of 5 that may"):
        await crowd.let_in([new_job(tenant="a")])
    await crowd.let_in([new_job(tenant="b")])
    assert store.asked == ["a", "b"]


async def test_a_count_holds_for_a_second_and_what_ended_makes_room_then() -> None:
    store = Store()
    store.waiting["a"] = 5
    crowd = store.crowd(5)
    with pytest.raises(TenantFull):
        await crowd.let_in([new_job(tenant="a")])
    store.waiting["a"] = 4
    store.now += FRESH_SECONDS / 2
    with pytest.raises(TenantFull):
        await crowd.let_in([new_job(tenant="a")])
    store.now += FRESH_SECONDS / 2
    await crowd.let_in([new_job(tenant="a")])
    assert store.asked == ["a", "a"]


async def test_a_count_that_takes_long_is_made_less_often() -> None:
    store = Store()
    store.takes = 0.5
    crowd = store.crowd(5)
    await crowd.let_in([new_job(tenant="a")])
    store.now += 9.9
    await crowd.let_in([new_job(tenant="a")])
    assert store.asked == ["a"]
    store.now += 0.2
    await crowd.let_in([new_job(tenant="a")])
    assert store.asked == ["a", "a"]


async def test_many_at_once_are_counted_once_and_each_takes_its_room() -> None:
    store = Store()
    crowd = store.crowd(5)
    answers = await asyncio.gather(*(crowd.let_in([new_job(tenant="a")]) for _ in range(20)), return_exceptions=True)
    assert Counter(type(answer) for answer in answers) == {type(None): 5, TenantFull: 15}
    assert store.asked == ["a"]


async def test_a_batch_is_let_in_whole_or_not_at_all() -> None:
    store = Store()
    store.waiting.update(a=1, b=5)
    crowd = store.crowd(5)
    with pytest.raises(TenantFull, match="tenant 'b'"):
        await crowd.let_in([new_job(tenant="a"), new_job(tenant="b")])
    with pytest.raises(TenantFull, match="and 5 more are too many"):
        await crowd.let_in([new_job(tenant="a")] * 5)
    await crowd.let_in([new_job(tenant="a")] * 4)
    with pytest.raises(TenantFull, match="6 jobs at once are more than the 5") as never:
        await crowd.let_in([new_job(tenant="c")] * 6)
    assert "send fewer at once" in never.value.fix


async def test_who_cannot_be_counted_is_not_let_in() -> None:
    store = Store()
    store.error = DriverUnavailable("gone", fix="wait")
    crowd = store.crowd(5)
    with pytest.raises(DriverUnavailable):
        await crowd.let_in([new_job(tenant="a")])
    store.error = None
    await crowd.let_in([new_job(tenant="a")])


async def test_tenants_of_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.control.crowd._MOST_KEPT", 3)
    store = Store()
    crowd = store.crowd(5)
    for number in range(10):
        await crowd.let_in([new_job(tenant=f"t{number}")])
        store.now += FRESH_SECONDS
    assert len(crowd._standings) <= 3
