"""does speed stay when rows pile up, dead behind a pinned snapshot or alive in front and behind?"""

from __future__ import annotations

import time
from typing import Any

from app.drivers.postgres.claim import CLAIM_ONE
from app.drivers.postgres.settle import SETTLE

from .bed import Bed, driver_on, raw_on
from .drain import WHOLE, bench_worker, by_workers, settled
from .work import NAME, new_jobs

_FINISHED = """
insert into outlast.finished(job_id, state, attempt, claim_no, crashes, interrupts)
select gen_random_uuid(), 0, 1, 1, 0, 0 from generate_series(1, $1)
"""


async def behind_a_pinned_snapshot(bed: Bed, *, jobs: int, windows: int = 10) -> tuple[float, float]:
    """Churn jobs while a reader keeps its snapshot; gives jobs a second in the first window and in the last."""
    async with bed.fresh("bench_pinned") as url, driver_on(url) as driver, raw_on(url) as reader, raw_on(url) as raw:
        worker = await driver.register_worker(bench_worker())
        await driver.enqueue_many(new_jobs(1_000))
        name_id = await raw.fetchval("select id from outlast.job_name where name = $1", NAME)
        snapshot = reader.transaction(isolation="repeatable_read", readonly=True)
        await snapshot.start()
        await reader.fetchval("select count(*) from outlast.job")
        rates = []
        for _ in range(windows):
            began = time.perf_counter()
            for _ in range(jobs // windows // 1_000):
                await driver.enqueue_many(new_jobs(1_000))
                await _drain(raw, worker, name_id)
            rates.append(jobs / windows / (time.perf_counter() - began))
        await snapshot.rollback()
        return rates[0], rates[-1]


async def beside_a_million(bed: Bed, *, jobs: int, rows: int, concurrency: int) -> tuple[float, float]:
    """Drain an empty store, then beside `rows` ready of a later priority and `rows` done."""
    empty, _ = await by_workers(bed, jobs=jobs, processes=1, concurrency=concurrency)
    full, _ = await by_workers(bed, jobs=jobs, processes=1, concurrency=concurrency, prepare=_pile_up(rows))
    return empty, full


def _pile_up(rows: int) -> Any:
    async def prepare(raw: Any, driver: Any) -> None:
        for _ in range(rows // 50_000):
            await driver.enqueue_many(new_jobs(50_000, priority=9))
        await raw.execute(_FINISHED, rows)
        await raw.execute("vacuum analyze")

    return prepare


async def _drain(raw: Any, worker: Any, name_id: int) -> None:
    binds = (worker, ["default"], [100], [name_id], 100, True, *WHOLE)
    while len(rows := await raw.fetch(CLAIM_ONE, *binds)) > 1:
        await raw.fetch(SETTLE, *settled(rows[1:], worker))
