"""What people come for, done as somebody does it who has only the pages."""

from __future__ import annotations

import re

import pytest

from app.domain.outcome import DeadLettered
from app.domain.state import DeadReason
from tests.browser.sight import POLYGLOT, Sight
from tests.http.api import failure
from tests.support.drivers import NAME, QUEUE

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


async def test_find_why_a_job_is_stuck(sight: Sight) -> None:
    async with sight.page("/") as page:
        await page.get_by_role("link", name=re.compile("^ready")).first.click()
        await page.locator(".rows tbody tr th a").first.click()
        said = await page.locator(".checks .stop").inner_text()
        assert "paused" in said
        await page.locator("aside").get_by_role("link", name=QUEUE).click()
        assert "By dev" in await page.locator(".title .sub").inner_text()
        assert POLYGLOT[:20] in await page.locator(".title .sub").inner_text(), "the reason, as it was written"
        await page.get_by_role("button", name="Resume").click()
        await page.get_by_text("Open: jobs are claimed again").wait_for()
    assert sight.complaints == []


async def test_retry_all_that_died_of_one_kind(sight: Sight) -> None:
    await sight.visitor.act(f"/queues/{QUEUE}/resume")
    await sight.visitor.api.finish(DeadLettered(error=failure("BROKEN"), reason=DeadReason.TERMINAL))
    async with sight.page("/dead") as page:
        await page.get_by_role("button", name="Retry group").click()
        assert await page.locator(".confirm h2").first.inner_text() == "Retry 2 jobs"
        await page.get_by_label("Reason, kept in the audit").fill("the shop is back")
        await page.get_by_role("button", name="Retry 2 jobs").click()
        assert await page.locator("h1").inner_text() == "Retry 2 jobs"
        assert await page.get_by_role("progressbar").get_attribute("aria-valuemax") == "2"
        assert "the shop is back" in await page.locator("#bulk").inner_text()
    assert sight.complaints == []


async def test_run_a_failed_job_again_with_edited_input(sight: Sight) -> None:
    async with sight.page(f"/jobs/{sight.ids['dead']}") as page:
        await page.get_by_text("Run again with edited input").click()
        await page.locator("form[action$='/duplicate'] textarea").fill('{"shop": 9007199254740993}')
        await page.get_by_role("button", name="Enqueue 1 job").click()
        await page.get_by_text("Enqueued as a new job").wait_for()
        assert "9007199254740993" in await page.locator("pre[aria-label=Payload]").inner_text()
        parent = page.locator("aside").get_by_title(sight.ids["dead"])
        assert await parent.count() == 1
    assert sight.complaints == []


async def test_a_filtered_view_is_the_same_elsewhere(sight: Sight) -> None:
    async with sight.page("/jobs") as page:
        await page.locator("#search").fill(f"state:live name:{NAME}")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**q=**")
        address = page.url.partition("/ui")[2]
        here = await page.locator(".rows tbody tr").evaluate_all("rows => rows.map((row) => row.id)")
    async with sight.page(address) as page:
        assert await page.locator(".rows tbody tr").evaluate_all("rows => rows.map((row) => row.id)") == here
        assert len(here) == 4
    assert sight.complaints == []


async def test_make_a_job_by_hand(sight: Sight) -> None:
    async with sight.page("/jobs") as page:
        await page.get_by_role("link", name="New job").click()
        await page.get_by_role("link", name=NAME).click()
        await page.locator("textarea[name=payload]").fill("{")
        await page.get_by_role("button", name="Enqueue 1 job").click()
        assert "JSON_INVALID" in await page.get_by_role("alert").inner_text()
        await page.locator("textarea[name=payload]").fill('{"a": 1}')
        await page.get_by_role("button", name="Enqueue 1 job").click()
        await page.get_by_text("Enqueued", exact=True).wait_for()
    assert [each for each in sight.complaints if "422" not in each] == []
