"""Ten thousand dead letters of one kind are retried after a fix, and no other, by somebody who has only the pages."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser

from app.domain.outcome import DeadLettered, ErrorInfo, Settlement
from app.domain.state import DeadReason, State
from app.drivers.claims import ClaimRequest, QueueShare
from tests.browser.test_drain import signed_in
from tests.process.conftest import fleet, folder, store
from tests.support.made import new_job, new_worker
from tests.support.processes import Fleet
from tests.support.store import Store

__all__ = ["fleet", "folder", "store"]
pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(240)]
MANY, FEW, BATCH = 10_000, 3, 1_000
NAME = "faults.fail"


async def bury(store: Store, code: str, count: int) -> None:
    """Make dead letters that died of one error."""
    driver, error = store.driver, ErrorInfo(type="ShopError", message="the shop is away", code=code)
    outcome = DeadLettered(error=error, reason=DeadReason.ATTEMPTS_EXHAUSTED)
    worker = await driver.register_worker(new_worker(concurrency=BATCH))
    shares = (QueueShare(queue="default", room=BATCH),)
    wanted = ClaimRequest(worker_id=worker, shares=shares, names=frozenset({NAME}), room=BATCH)
    left = count
    while left:
        jobs = [new_job(NAME) for _ in range(min(left, BATCH))]
        await driver.enqueue_many(jobs)
        claimed = await driver.claim(wanted)
        await driver.settle([Settlement(token=job.token, outcome=outcome) for job in claimed])
        left -= len(claimed)
    await driver.close_worker(worker)


async def test_retry_ten_thousand_of_one_kind(chromium: Browser, fleet: Fleet, store: Store) -> None:
    await bury(store, "SHOP_AWAY", MANY)
    await bury(store, "SHOP_CLOSED", FEW)
    api = fleet.api()
    await api.ready()
    async with signed_in(chromium, api, "/dead") as (page, complaints):
        row = page.locator(".groups tbody tr").filter(has_text="SHOP_AWAY")
        assert "10,000" in await row.inner_text()
        await row.get_by_role("button", name="Retry group").click()
        assert await page.locator(".confirm h2").first.inner_text() == "Retry 10,000 jobs"
        assert "SHOP_AWAY" in await page.locator(".confirm p").first.inner_text()
        await page.get_by_label("Reason, kept in the audit").fill("the shop is back")
        await page.get_by_role("button", name="Retry 10,000 jobs").click()
        await page.wait_for_url(re.compile(r"/ui/bulk/[0-9a-f-]{36}"))
        assert await page.get_by_role("progressbar").get_attribute("aria-valuemax") == str(MANY)
        await fleet.worker(OUTLAST_QUEUES="other").ready()
        await page.locator("#bulk .st[data-s=done]").wait_for(timeout=120_000)
        assert await page.get_by_role("progressbar").get_attribute("aria-valuenow") == str(MANY)
        assert complaints == []
    stats = await store.driver.stats()
    assert (stats.by_state[State.READY], stats.by_state[State.DEAD]) == (MANY, FEW), "the other kind stays dead"
