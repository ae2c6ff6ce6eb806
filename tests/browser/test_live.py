"""Pages that change while they are read, and the keys."""

from __future__ import annotations

import pytest

from app.domain.outcome import Completed
from tests.browser.sight import Sight
from tests.support.drivers import QUEUE

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


async def test_a_job_is_seen_to_end_while_its_page_is_open(sight: Sight) -> None:
    job = sight.ids["ready"]
    await sight.visitor.act(f"/queues/{QUEUE}/resume")
    async with sight.page(f"/jobs/{job}") as page:
        assert "ready" in await page.locator("#title .st").inner_text()
        await sight.visitor.api.finish(Completed(result="1"))
        await page.locator("#title .st[data-s=done]").wait_for(timeout=15_000)
    assert sight.complaints == []


async def test_rows_change_in_place_and_new_ones_wait_to_be_let_in(sight: Sight) -> None:
    await sight.visitor.act(f"/queues/{QUEUE}/resume")
    async with sight.page("/jobs") as page:
        before = await page.locator(".rows tbody tr").evaluate_all("rows => rows.map((row) => row.id)")
        await page.locator("#search").fill("queue:ty")
        new = await sight.visitor.api.post(delay_ms=60_000)
        await sight.visitor.api.finish(Completed(result="1"))
        await page.locator(f"#job-{sight.ids['ready']} .st[data-s=done]").wait_for(timeout=15_000)
        assert await page.locator(".rows tbody tr").evaluate_all("rows => rows.map((row) => row.id)") == before
        assert await page.locator("#search").input_value() == "queue:ty", "what is being typed stays"
        await page.get_by_text("Live, 1 change").click()
        await page.locator(f"#job-{new['id']}").wait_for(timeout=15_000)
    assert sight.complaints == []


async def test_a_change_leaves_the_row_one_is_on_and_what_is_opened(sight: Sight) -> None:
    await sight.visitor.act(f"/queues/{QUEUE}/resume")
    job = sight.ids["ready"]
    async with sight.page("/jobs") as page, sight.page(f"/jobs/{sight.ids['dead']}") as other:
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        on = await page.locator(".rows .cur").get_attribute("id")
        await other.locator("details.fold").first.evaluate("fold => { fold.open = !fold.open }")
        opened = "folds => folds.map((fold) => fold.open)"
        folds = await other.locator("details").evaluate_all(opened)
        await other.evaluate("document.getElementById('title').classList.add('old')")
        await sight.visitor.api.finish(Completed(result="1"))
        await page.locator(f"#job-{job} .st[data-s=done]").wait_for(timeout=15_000)
        await other.evaluate("document.body.dispatchEvent(new Event('job-changed'))")
        await other.locator("#title:not(.old)").wait_for(timeout=15_000)
        assert await page.locator(".rows .cur").get_attribute("id") == on
        assert await other.locator("details").evaluate_all(opened) == folds
    assert sight.complaints == []


async def test_a_selection_holds_the_page_still(sight: Sight) -> None:
    async with sight.page("/jobs") as page:
        assert not await page.locator(".bulk").is_visible()
        await page.locator(f"#job-{sight.ids['ready']} input").check()
        assert await page.locator(".bulk").is_visible()
        assert "1 selected" in await page.locator(".bulk").inner_text()
        assert await page.locator(".live").get_attribute("data-live") == "paused"
        await page.keyboard.press("a")
        assert f"{len(sight.ids)} selected" in await page.locator(".bulk").inner_text()
        assert "Cancel 4…" in await page.locator(".bulk").inner_text(), "those of them that live"
        await page.keyboard.press("Escape")
        assert not await page.locator(".bulk").is_visible()
    assert sight.complaints == []


async def test_keys_lead_where_links_do(sight: Sight) -> None:
    async with sight.page("/") as page:
        await page.keyboard.press("g")
        await page.keyboard.press("j")
        await page.wait_for_url("**/ui/jobs")
        await page.keyboard.press("/")
        await page.keyboard.type("state:dead")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/ui/jobs?*")
        assert await page.locator(".rows tbody tr").count() == 1
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**/ui/jobs/{sight.ids['dead']}")
        await page.keyboard.press("?")
        assert await page.locator("#keys").is_visible()
        await page.keyboard.press("Escape")
        assert not await page.locator("#keys").is_visible()
    assert sight.complaints == []
