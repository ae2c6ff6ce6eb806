"""Two moves at once from one database to another: each job is counted by the one that ended its move."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from app.domain.audit import Acting
from app.domain.moving import Bucket
from tests.postgres.pages import administrator
from tests.postgres.test_moves import Two, ends_of, fetch, ids_in, two
from tests.support.processes import eventually

__all__ = ["two"]

pytestmark = pytest.mark.postgres

_WAIT = """
select count(*) = 2 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"""


async def test_of_two_moves_that_bring_the_same_jobs_each_counts_those_it_ended(two: Two) -> None:
    """Both have had the target's answer when the first of them ends a move."""
    source, target = two
    await target.enqueue(key="k")
    refused = await source.enqueue(key="k")
    fine = [await source.enqueue() for _ in range(2)]
    await ends_of(source).take(Bucket.READY, target=await ends_of(target).identity())
    came = [Counter[str](), Counter[str]()]

    async def move(mine: Counter[str]) -> None:
        async for step in two.control.move(queue=None, by=Acting(actor="ada")):
            mine.update({verdict.value: count for verdict, count in step.verdicts.items()})

    async with administrator(source.engine.url.render_as_string(hide_password=False)) as holder:
        async with holder.transaction():
            await holder.execute("select from outlast.moving for update")
            moves = [asyncio.create_task(move(mine)) for mine in came]

            async def are_both_behind() -> bool:
                return bool((await fetch(source, _WAIT))[0][0])

            await eventually(are_both_behind, "both moves wait to end what they have brought")
        await asyncio.gather(*moves)
    assert came[0] + came[1] == {"key_taken": 1, "moved": 2}
    assert (await ids_in(source), await fetch(source, "select from outlast.moving")) == ([refused], [])
    assert set(fine) <= set(await ids_in(target))
