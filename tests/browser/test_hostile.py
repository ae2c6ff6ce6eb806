"""A text that is markup, script and address at once, in every field there is: none of it runs, and no page breaks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from tests.browser.hostile import Hostile
from tests.browser.sight import POLYGLOT
from tests.dashboard.visitor import Visitor
from tests.support.drivers import memory_env

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

# What must not have come of a text, before and after its regions are read again as a live page reads them.
_LOOK = """async () => {
  const odd = () => [...document.querySelectorAll(":not(.uplots *)")].flatMap((element) => [
    ...[...element.attributes].filter((each) => /^on|^style$|^hx-on/i.test(each.name) ||
      (/^(href|src|action|formaction|xlink:href)$/i.test(each.name) && /^\\s*(javascript|data):/i.test(each.value)))
      .map((each) => `${element.tagName} ${each.name}=${each.value.slice(0, 40)}`),
    ...(element.tagName === "SCRIPT" && !element.src.startsWith(`${location.origin}/ui/static/`) ? ["a script"] : []),
  ]);
  const count = (each) => document.querySelectorAll(each).length;
  const shape = () => ["main", "h1", "nav#nav", "dialog#keys"].map(count).join();
  const found = [...odd(), ...(shape() === "1,1,1,1" ? [] : [`a page of ${shape()}`])];
  for (const region of document.querySelectorAll("[data-region]:not([data-region=series])"))
    await htmx.swap({ sourceElement: region, target: region, text: region.outerHTML, swap: "outerMorph" });
  return [...found, ...odd(), ...(shape() === "1,1,1,1" ? [] : [`then ${shape()}`])];
}"""


@pytest.fixture
async def hostile(chromium: Browser) -> AsyncIterator[Hostile]:
    async with memory_env() as env:
        visitor = Visitor(env, config=[("OUTLAST_CODE_VERSION", POLYGLOT, True)])
        async with visitor.beside(), visitor.api.served() as (host, port):
            there = Hostile(visitor, chromium, f"http://{host}:{port}")
            await there.fill(POLYGLOT)
            yield there


async def test_no_word_of_a_store_is_more_than_a_word(hostile: Hostile) -> None:
    found, shown = {}, []
    async for path, page in hostile.tour():
        odd = await page.evaluate(_LOOK)
        if odd or hostile.complaints:
            found[path] = [*odd, *hostile.complaints]
        hostile.complaints = []
        if POLYGLOT[:16] in (await page.content()).replace("&#39;", "'"):
            shown.append(path)
    assert found == {}
    silent = [path for path in hostile.paths() if path not in shown]
    assert [path for path in silent if not path.startswith("/login")] == [], "every one of them has shown it"
    assert hostile.complaints == []
