"""F41: a worker is killed in the middle of a long purge; whoever comes next goes on where it was.

Not audited: an audit of a million deletions would be a purge of its own. `make soak` does it with a million jobs.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.postgres.pages import administrator
from tests.postgres.test_purge_scale import _ENDED
from tests.support.processes import Fleet, eventually, report
from tests.support.store import Store, store_on

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(1200)]

_MARK = "select after, began_at, round_at from outlast.purge_mark where kind = 'jobs'"


# A step takes its time, so that a killer comes between two of few.
_SLOW = """
create function public.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.1); return null; end $$;
create trigger slow before delete on outlast.finished for each statement execute function public.slow()"""


async def _mark(store: Store) -> Any:
    rows = await store.fetch(_MARK)
    return rows[0] if rows else None


async def _place(store: Store) -> str:
    """Give the last job of the round that was looked at, nothing while none is under way."""
    mark = await _mark(store)
    return "" if mark is None or mark["after"] is None else str(mark["after"])


async def _left(store: Store) -> int:
    ((count,),) = await store.fetch("select count(*) from outlast.finished")
    return int(count)


async def _killed_and_gone_on(
    fleet: Fleet, url: str, dice: random.Random, jobs: int, *, kills: int, is_slow: bool = False
) -> None:
    patience = 60.0 if is_slow else 600.0
    async with store_on(url) as store:
        await store.publish()
        one = await store.enqueue("faults.hold")
        async with administrator(url) as admin:
            name_id = await admin.fetchval("select name_id from outlast.job where id = $1", one)
            await admin.execute(_ENDED, jobs, name_id)
            await admin.execute("vacuum (analyze)")
            await admin.execute(_SLOW if is_slow else "select 1")
        places = [""]
        for number in range(kills):
            worker = fleet.worker("--queues", "nothing", OUTLAST_PURGE_SECONDS="1")
            wanted = jobs - jobs * (number + dice.random()) / (kills + 1)

            async def has_done(wanted: float = wanted) -> bool:
                return await _left(store) <= wanted and await _place(store) != ""

            await eventually(has_done, f"{number + 1} of {kills} have come so far", within=patience)
            worker.kill()
            place, left = await _place(store), await _left(store)
            assert place > places[-1], "it went on behind the one before"
            places.append(place)
            # What lies before the mark is gone: nothing of it is ever looked for again.
            before = await store.fetch("select count(*) from outlast.finished where job_id <= $1::text::uuid", place)
            assert before[0][0] == 0
            report(f"killed with {left:,} of {jobs:,} left")
        begun = (await _mark(store))["began_at"]
        ended = list[Any]()
        await fleet.worker("--queues", "nothing", OUTLAST_PURGE_SECONDS="1").ready()

        async def is_over() -> bool:
            mark = await _mark(store)
            ended.extend([mark["round_at"]] if mark["after"] is None else [])
            return bool(ended)

        await eventually(is_over, "the round is over", within=patience)
        assert ended == [begun], "it is the round that the first one began"
        assert await _left(store) == 0
        rows = await store.fetch("select id from outlast.job")
        assert [row["id"] for row in rows] == [one], "what has not ended stays"
        for table in ("attempt", "expiry"):
            assert await store.fetch(f"select from outlast.{table} limit 1") == []


async def test_a_purge_that_is_killed_goes_on_where_it_was(
    fleet: Fleet, database_url: str, dice: random.Random
) -> None:
    await _killed_and_gone_on(fleet, database_url, dice, 20_000, kills=2, is_slow=True)


@pytest.mark.soak
async def test_a_purge_of_a_million_that_is_killed_goes_on_where_it_was(fleet: Fleet, database_url: str) -> None:
    await _killed_and_gone_on(fleet, database_url, random.Random(41), 1_000_000, kills=3)
