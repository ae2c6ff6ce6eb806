"""Charts that are read with a pointer and lead to what they count, and a job on paper."""

from __future__ import annotations

import pytest
from playwright.async_api import Page

from app.dashboard.words import dur
from app.domain.flow import FlowPart, Tally
from tests.browser.sight import Sight
from tests.support.drivers import NAME, QUEUE
from tests.support.made import flow_of

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

MANY = Tally(counts=(96, 3, 1, 2, 0, 0), waits=(0, 0, 0, 0, 100, *(0,) * 11))
SPANS = (0.001, 0.25, 0.999, 1.84, 9.9, 10, 59.9, 60, 61, 3_599, 3_600, 5_400, 86_399, 86_400, 200_000)
_SPELL = """async (spans) => {
  const { spell } = await import(document.querySelector("script[type=module]").src.replace("main.js", "charts.js"));
  return spans.map(spell);
}"""


async def said(page: Page, column: str) -> str:
    return await page.locator(f"#charts [data-line={column}] b").inner_text()


async def test_charts_are_live_read_under_the_pointer_and_lead_to_a_bucket(sight: Sight) -> None:
    async with sight.page("/") as page:
        assert await page.locator("#charts canvas").count() == 3
        assert await page.evaluate(_SPELL, SPANS) == [dur(span * 1_000) for span in SPANS]
        await page.locator("#table-outcomes summary").click()
        await sight.visitor.env.driver.add_flow(flow_of(FlowPart(NAME, QUEUE, MANY)))
        sight.visitor.api.services.flow._kept.clear()
        await sight.visitor.api.post(delay_ms=60_000)
        await page.locator("#charts [data-line=ok] b", has_text="96").wait_for(timeout=15_000)
        assert [await said(page, column) for column in ("failed", "dead", "p95")] == ["3", "1", "98 ms"]
        assert await page.locator("#table-outcomes tbody td").first.inner_text() == "96", "open as it was left"
        box = await page.locator("[data-chart=outcomes] .u-over").first.bounding_box()
        assert box is not None
        await page.mouse.move(box["x"] + 3, box["y"] + 20)
        assert [await said(page, column) for column in ("ok", "p95")] == ["0", "\u2013"], "both charts at one time"
        await page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 20)
        assert [await said(page, column) for column in ("ok", "p95")] == ["96", "98 ms"]
        assert " to " in await page.locator("#charts [data-scope]").first.inner_text()
        await page.mouse.move(5, 5)
        assert await page.locator("#charts [data-scope]").first.inner_text() == "last hour, per minute"
        await page.mouse.click(box["x"] + box["width"] - 3, box["y"] + 20)
        await page.wait_for_url("**/ui/jobs?q=finished*")
        assert await page.locator(".chip b").all_inner_texts() == ["finished:", "until:"]
        await page.locator(".hist a").last.click()
        await page.locator(".hist [aria-current]").wait_for()
    assert sight.complaints == []


async def test_a_job_on_paper_is_light_unfolded_and_without_what_can_be_pressed(sight: Sight) -> None:
    async with sight.page(f"/jobs/{sight.ids['retried']}", scheme="dark") as page:
        assert not await page.locator("#trace-1 pre").is_visible()
        await page.emulate_media(media="print", color_scheme="dark")
        for hidden in (".side", ".head", "#act", ".codebar .btn"):
            assert not await page.locator(hidden).first.is_visible(), hidden
        for shown in ("h1", "#life aside .id", ".wf .att", "#trace-1 pre"):
            assert await page.locator(shown).first.is_visible(), shown
        colours = "['backgroundColor', 'color'].map((name) => getComputedStyle(document.body)[name])"
        assert await page.evaluate(colours) == ["rgba(0, 0, 0, 0)", "rgb(23, 24, 26)"]
        await page.evaluate("document.documentElement.dataset.theme = 'dark'")
        assert (await page.evaluate(colours))[1] == "rgb(23, 24, 26)", "also where dark was chosen"
        await sight.keep(page, "print-job")
    assert sight.complaints == []
