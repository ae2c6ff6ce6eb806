"""What turns cost: a look that does not grow with what waits, and a known number of trips; without them, nothing."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.queue import QueueChange
from app.drivers.postgres.due import _DUE
from app.drivers.postgres.gate_look import LOOK
from tests.postgres.meter import asks
from tests.postgres.pages import Pages, open_pages, warm_meter
from tests.postgres.test_plans import plan, session
from tests.support.made import QUEUE, new_job

__all__ = ["session"]

pytestmark = pytest.mark.postgres

FEW, MANY = 1_000, 10_000
ROOM = 20


async def of_look(pages: Pages) -> int:
    return await pages.of(LOOK, pages.worker, [QUEUE], [ROOM], [pages.name_id], 64, True, [""])


async def test_a_look_does_not_grow_with_what_one_tenant_has_waiting(lone_url: str) -> None:
    async with open_pages(lone_url) as pages:
        driver = pages.meter.driver
        await driver.set_queue(QUEUE, QueueChange(is_fair=True))
        await driver.enqueue(new_job(tenant="other"))
        await driver.enqueue_many([new_job(tenant="busy") for _ in range(FEW)])
        await pages.tidy()
        before = await of_look(pages)
        await driver.enqueue_many([new_job(tenant="busy") for _ in range(MANY - FEW)])
        await pages.tidy()
        # A level more of an index, here and there.
        assert await of_look(pages) <= before * 1.5


async def test_fair_jobs_are_let_in_in_three_trips_and_a_queue_that_is_not_asks_none_of_them(lone_url: str) -> None:
    async with warm_meter(lone_url) as (meter, worker):
        await meter.driver.set_queue(QUEUE, QueueChange(is_fair=True))
        for counted in (False, True):
            await meter.driver.enqueue_many([new_job(tenant=tenant) for tenant in "aab"])
            async with meter.counting():
                jobs = (await meter.driver.admit(asks(worker, 10))).jobs
            assert len(jobs) == 3
            await meter.finish(jobs)
            if counted:
                assert [sql.split()[0].lower() for sql in meter.verbs] == ["with", "with", "insert"]
                assert not any(job.has_slots for job in jobs), "nothing is given back at their end"


async def test_what_is_out_of_line_is_looked_for_along_indexes(session: Any) -> None:
    nodes = [node for node in await plan(session, _DUE) if node.get("Relation Name") in {"ready", "gate"}]
    by_tenant = [node for node in nodes if "fair" not in node and "Index Cond" in node]
    assert {node["Relation Name"] for node in by_tenant} == {"ready", "gate"}
