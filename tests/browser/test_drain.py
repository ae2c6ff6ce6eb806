"""A deploy that is watched: a real worker gets SIGTERM, and the page tells how it leaves and what it handed back."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Page

from app.domain.state import State
from tests.process.conftest import fleet, folder, store
from tests.support.processes import KEY, Fleet, Service, eventually
from tests.support.store import Store

__all__ = ["fleet", "folder", "store"]
pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(120)]
DRAIN = 20.0


@asynccontextmanager
async def signed_in(chromium: Browser, api: Service, path: str) -> AsyncIterator[tuple[Page, list[str]]]:
    """Give a page behind the door, and what the browser complains of."""
    complaints: list[str] = []
    context = await chromium.new_context()
    page = await context.new_page()
    page.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await page.goto(f"http://localhost:{urlsplit(api.api).port}/ui{path}")
    await page.get_by_label("API key").fill(KEY)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(f"**/ui{path}")
    yield page, complaints
    await context.close()


async def tells_when(page: Page) -> None:
    """The whole time is told, and when in it runs are cancelled and abandoned."""
    assert await page.locator(".drain .left small").inner_text() == "of 20 s"
    axis = await page.locator(".held thead text").all_text_contents()
    assert axis[:3] == ["told", "cancel 18 s, abandon 19 s", "gone 20 s"]
    assert axis[3].startswith("now ")


async def counts_down_while_paused(page: Page) -> None:
    await page.keyboard.press("r")
    assert "Paused" in await page.locator(".live").inner_text()
    left = page.locator(".left b")
    before = float(await left.inner_text())
    await page.wait_for_function("(before) => +document.querySelector('.left b').textContent < before - 1", arg=before)
    assert 0 < float(await left.inner_text()) < before <= DRAIN
    await page.keyboard.press("r")


async def test_watch_a_deploy_drain(chromium: Browser, fleet: Fleet, store: Store) -> None:
    api, worker = fleet.api(), fleet.worker(OUTLAST_DRAIN_SECONDS=str(DRAIN))
    await worker.ready()
    await api.ready()
    heeding = await store.enqueue("faults.hold", {"gate": "never", "heed": True})
    working = await store.enqueue("faults.hold", {"gate": "done", "heed": False})
    await store.all_until([heeding, working], State.RUNNING)
    async with signed_in(chromium, api, "/workers") as (page, complaints):
        assert await page.locator("#fleet .fleet [data-s=serving]").count() == 1
        worker.terminate()
        await page.locator(".drain .phases .at", has_text="in-flight").wait_for(timeout=15_000)
        assert "SIGTERM" in await page.locator(".drain header").inner_text()
        await page.locator(".held tbody tr").filter(has_text=str(working)[-8:]).wait_for()
        await page.locator(".held tbody tr").filter(has_text=str(heeding)[-8:]).wait_for(state="detached")
        await tells_when(page)
        await counts_down_while_paused(page)
        fleet.ledger.open("done")
        assert await worker.gone() == 0
        await page.locator(".drain").wait_for(state="detached", timeout=15_000)
        report = page.locator("section[aria-labelledby=reports]")
        await report.get_by_text(re.compile("^Handed back by")).wait_for(timeout=15_000)
        row = await report.locator("tbody tr").first.locator("td").all_inner_texts()
        assert row[1:4] == ["1", "1", "0"], "completed, interrupted, abandoned"
        said = await report.locator(".detail li").all_inner_texts()
        assert len(said) == 1
        assert "interrupted, not counted" in said[0]
        assert "not claimed again yet" in said[0]
        await report.locator(".detail li a").click()
        await page.wait_for_url(f"**/ui/jobs/{heeding}")
        assert "ready" in await page.locator("#title .st").inner_text()
        await fleet.worker().ready()
        await page.locator("#title .st[data-s=running]").wait_for(timeout=15_000)
        assert complaints == []
    assert (await store.view(heeding)).counters.interrupts == 1
    assert (await store.view(working)).state is State.DONE
    await eventually(lambda: worker.said("worker.drain_signalled") != [], "it was a drain")
