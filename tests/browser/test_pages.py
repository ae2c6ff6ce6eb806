"""Every page in a real browser: nothing complained of, nothing sideways on a phone, nothing that keeps people out."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Route

from tests.browser.sight import PHONE, WIDE, Sight

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


async def test_no_page_complains_or_keeps_people_out(sight: Sight) -> None:
    found = {}
    async for path, page in sight.tour():
        await page.emulate_media(color_scheme="light")
        await sight.keep(page, f"light{path.replace('/', '-')}")
        barriers = await sight.barriers(page)
        await sight.keep(page, f"dark{path.replace('/', '-')}")
        if path == "/nothing":
            sight.complaints = [each for each in sight.complaints if "404" not in each]
        if barriers or sight.complaints:
            found[path] = [*barriers, *sight.complaints]
        sight.complaints = []
    assert found == {}
    assert sight.complaints == []


async def test_no_page_is_wider_than_a_phone(sight: Sight) -> None:
    wide = {}
    async for path, page in sight.tour(size=PHONE):
        width = await page.evaluate("document.documentElement.scrollWidth")
        await sight.keep(page, f"phone{path.replace('/', '-')}")
        if width > PHONE["width"]:
            wide[path] = width
    assert wide == {}


async def test_pages_read_without_a_script(sight: Sight) -> None:
    async with sight.page("/jobs", scripts=False) as page:
        assert await page.locator(".rows tbody tr").count() == len(sight.ids)
        await page.locator(f"#job-{sight.ids['ready']} input").check()
        await page.get_by_role("button", name="Cancel…").click()
        await page.get_by_label("Type 1 to go on").fill("1")
        await page.get_by_role("button", name="Cancel 1 jobs").click()
        assert await page.locator("h1").inner_text() == "Cancel 1 jobs"


async def test_a_form_that_is_sent_twice_is_sent_once(sight: Sight) -> None:
    reached, may_go = [], asyncio.Event()

    async def slow(route: Route) -> None:
        reached.append(route.request.url)
        await may_go.wait()
        await route.continue_()

    old = sight.ids["ready"]
    async with sight.page(f"/jobs/{old}") as page:
        await page.route("**/fork", slow)
        await page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        button = page.locator("form[action$='/fork'] button")
        await button.scroll_into_view_if_needed()
        box = await button.bounding_box()
        assert box is not None
        for _ in range(2):  # as a hand does it, which waits for nothing
            await page.mouse.click(box["x"] + 5, box["y"] + 5)
            while not reached:
                await page.wait_for_timeout(10)
        may_go.set()
        await page.wait_for_url(lambda address: not address.endswith(old))
    assert len(reached) == 1
    children = (await sight.visitor.api.client.get("/v1/jobs", params={"parent_id": old})).json()["items"]
    assert len(children) == 1
    assert sight.complaints == []


async def test_a_theme_is_there_from_the_first_byte(sight: Sight) -> None:
    async with sight.page("/", size=WIDE) as page:
        await page.keyboard.press("t")
        await page.wait_for_selector("html[data-theme=light]")
        await page.keyboard.press("t")
        await page.wait_for_selector("html[data-theme=dark]")
        colour = await page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert colour == "rgb(18, 19, 20)"
    assert sight.complaints == []
