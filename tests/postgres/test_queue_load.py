"""The view that autoscalers read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.postgres.arena import Arena

pytestmark = pytest.mark.postgres

_LOAD = "select queue, ready, running, oldest_ready_seconds from outlast.queue_load order by queue"
# What an autoscaler is told to run.
_WANTED = "select ceil((ready + running) / 10.0) as n from outlast.queue_load where queue = 'default'"


async def _load(arena: Arena) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in await arena.fetch(_LOAD)]


async def test_an_empty_store_has_no_load(arena: Arena) -> None:
    assert await _load(arena) == []


async def test_a_queue_that_is_served_and_empty_has_a_row_of_noughts(arena: Arena) -> None:
    await arena.register(queues=("default", "mail"))
    assert await _load(arena) == [("default", 0, 0, 0.0), ("mail", 0, 0, 0.0)]


async def test_ready_and_running_jobs_are_counted_and_delayed_ones_are_not(arena: Arena) -> None:
    worker = await arena.register()
    await arena.running(worker)
    await arena.enqueue(priority=3)
    await arena.advance(timedelta(seconds=30))
    await arena.enqueue(priority=1)
    await arena.enqueue(queue="mail")
    await arena.enqueue(delay=timedelta(hours=1))
    await arena.advance(timedelta(seconds=10))
    assert await _load(arena) == [("default", 2, 1, 40.0), ("mail", 1, 0, 10.0)]
    assert [int(row["n"]) for row in await arena.fetch(_WANTED)] == [1]
