"""The short statement and the whole one: a batch is stored the same by either, whatever its columns have in common."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.domain.job import Enqueued, NewJob, RunId
from app.drivers.postgres import enqueue
from app.drivers.postgres.database import Database
from app.drivers.postgres.driver import PostgresDriver
from tests.postgres.arena import Arena
from tests.support.drivers import new_id, new_job

pytestmark = pytest.mark.postgres

_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["a.job", "b.job"]),
        "payload": st.sampled_from(['{"a": 1}', "[]", '"\u00e9"']),
        "queue": st.sampled_from(["default", "mail"]),
        "priority": st.integers(0, 9),
        "tenant": st.sampled_from(["default", "acme"]),
        "max_attempts": st.sampled_from([1, 25]),
        "max_crashes": st.sampled_from([1, 3]),
        "timeout": st.sampled_from([timedelta(microseconds=1), timedelta(seconds=1), timedelta(days=1000)]),
        "parent_id": st.builds(new_id),
        "enqueued_by": st.sampled_from(["key:ci", "tests"]),
        "traceparent": st.just(_TRACE),
        "tags": st.sampled_from([("a",), ("b", '"quoted", \\ {}'), ("NULL", "null")]),
        "meta": st.just('{"x": 1}'),
        "dedupe_for": st.just(timedelta(hours=1)),
    },
)
_STORED = """
select to_jsonb(j) - 'id' - 'seq' as envelope, to_jsonb(r) - 'job_id' - 'seq' as token,
  r.seq - min(r.seq) over () as place
from unnest($1::uuid[]) with ordinality u(id, ord)
join outlast.job j on j.id = u.id
join outlast.ready r on (r.job_id, r.seq) = (j.id, j.seq)
order by u.ord"""


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shapes=st.lists(_FIELDS, min_size=1, max_size=5))
async def test_both_statements_store_a_batch_alike(arena: Arena, shapes: list[dict[str, Any]]) -> None:
    db = _database(arena)
    short = [new_job(**shape) for shape in shapes]
    whole = [replace(job, id=new_id()) for job in short]
    assert await enqueue._store_plain(db, short)
    batch = await enqueue._store(db, whole, is_atomic=True)
    assert batch.in_order() == tuple(_own(job) for job in whole)
    rows = await _rows(arena, short)
    assert rows == await _rows(arena, whole)
    assert [place for _, _, place in rows] == list(range(len(shapes)))


@pytest.mark.parametrize("beside", [{}, {"key": "k"}], ids=["short", "whole"])
async def test_an_answer_whose_loss_makes_a_caller_repeat_its_batch_is_given_again(
    arena: Arena, beside: dict[str, str]
) -> None:
    """In another company, too: the jobs that are there are left alone, the others are stored."""
    batch = [new_job() for _ in range(3)]
    first = await arena.driver.enqueue_many(batch)
    more = new_job(**beside)
    again = await arena.driver.enqueue_many([batch[2], more, batch[0], more])
    assert again == (first[2], _own(more), first[0], _own(more))
    assert len(await arena.fetch("select from outlast.job")) == 4
    assert len(await arena.fetch("select from outlast.ready")) == 4


def _own(job: NewJob) -> Enqueued:
    return Enqueued(id=job.id, run_id=RunId(job.id), deduped=False)


def _database(arena: Arena) -> Database:
    return cast("PostgresDriver", arena.driver)._db


async def _rows(arena: Arena, jobs: list[NewJob]) -> list[tuple[object, ...]]:
    async with _database(arena).raw() as conn:
        return [tuple(row.values()) for row in await conn.fetch(_STORED, [job.id for job in jobs])]
