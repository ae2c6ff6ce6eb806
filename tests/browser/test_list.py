"""The list of jobs as it is worked with: by keys, with views of one's own, and when the service is away."""

from __future__ import annotations

import pytest

from app.domain.outcome import Completed
from tests.browser.sight import Sight
from tests.support.drivers import QUEUE

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


async def test_a_view_is_kept_and_forgotten_in_this_browser(sight: Sight) -> None:
    async with sight.page("/jobs?q=state:live+name:demo.job") as page:
        views = page.locator(".views a")
        before = await views.count()
        await page.get_by_role("button", name="Save view").click()
        assert await views.nth(before).inner_text() == "state:live name:demo.job"
        await page.goto(page.url.partition("?")[0])
        assert await page.locator("[data-do=save]").is_hidden(), "what everybody has is not kept"
        await views.nth(before).click()
        await page.wait_for_url("**q=state%3Alive**")
        await page.get_by_role("button", name="Forget view").click()
        assert await views.count() == before
    assert sight.complaints == []


async def test_keys_select_a_range_and_all_that_match(sight: Sight) -> None:
    async with sight.page("/jobs") as page:
        for key in ("j", "x", "j", "j", "Shift+X"):
            await page.keyboard.press(key)
        assert "3 selected" in await page.locator(".bulk").inner_text()
        await page.keyboard.press("a")
        await page.keyboard.press("a")
        assert "All matching" in await page.locator(".bulk").inner_text()
        await page.keyboard.press("Escape")
        await page.keyboard.press("?")
        await page.get_by_label("Single keys act").uncheck()
        await page.keyboard.press("Escape")
        await page.keyboard.press("a")
        assert not await page.locator(".bulk").is_visible()
        await page.keyboard.press("?")
        await page.get_by_label("Single keys act").check()
    assert sight.complaints == []


async def test_columns_and_files_are_behind_one_button(sight: Sight) -> None:
    async with sight.page("/jobs") as page:
        await page.get_by_role("button", name="Export").click()
        async with page.expect_download() as download:
            await page.get_by_role("link", name="CSV").first.click()
        assert (await download.value).suggested_filename.endswith(".csv")
        await page.get_by_role("button", name="Columns").click()
        await page.get_by_label("Queue").uncheck()
        await page.get_by_role("button", name="Show these").click()
        await page.wait_for_load_state()
        assert await page.locator("thead th", has_text="Queue").count() == 0
    assert sight.complaints == []


async def test_a_page_that_hears_nothing_says_since_when_and_keeps_what_it_shows(sight: Sight) -> None:
    async with sight.page("/jobs") as page:
        rows = await page.locator(".rows tbody tr").count()
        await page.route("**/ui/**", lambda route: route.abort())
        await page.locator("#stale").wait_for(timeout=20_000)
        assert "The service does not answer." in await page.locator("#stale").inner_text()
        assert await page.locator(".live").inner_text() == "Reconnecting"
        assert await page.locator(".rows tbody tr").count() == rows, "old numbers stay, they are not zeros"
        await page.unroute("**/ui/**")
        await page.get_by_role("button", name="Try now").click()
        await page.locator("#stale").wait_for(state="hidden", timeout=20_000)
    assert [each for each in sight.complaints if "ERR_FAILED" not in each] == []


async def test_a_paused_page_counts_what_it_does_not_show(sight: Sight) -> None:
    await sight.visitor.act(f"/queues/{QUEUE}/resume")
    async with sight.page("/jobs") as page:
        await page.keyboard.press("r")
        await sight.visitor.api.finish(Completed(result="1"))
        await sight.visitor.api.post(delay_ms=60_000)
        await page.get_by_text("Paused, 2 changes").wait_for(timeout=15_000)
        assert await page.locator(f"#job-{sight.ids['ready']} .st[data-s=ready]").count() == 1
        await page.keyboard.press("r")
        await page.locator(f"#job-{sight.ids['ready']} .st[data-s=done]").wait_for(timeout=15_000)
        assert await page.locator(".rows tbody tr").count() == len(sight.ids) + 1
    assert sight.complaints == []
