"""Pictures of four situations, in light, dark and on a phone, kept where CI keeps them, to be looked at side by side.

A page that complains, keeps people out or is wider than a phone in one of them fails.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Browser, ConsoleMessage, Page

from tests.browser.fetch import BROWSER
from tests.browser.scenes import SCENES, Stage
from tests.browser.sight import AXE, CONTRAST, PHONE, WIDE
from tests.dashboard.visitor import Visitor
from tests.support.drivers import memory_env
from tests.support.source import CHECKOUT

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

FOLDER = Path(os.environ.get("PICTURES") or CHECKOUT / "artefacts" / "pictures")
LOOKS: dict[str, tuple[dict[str, int], Literal["light", "dark"]]] = {
    "light": (WIDE, "light"),
    "dark": (WIDE, "dark"),
    "phone": (PHONE, "light"),
}
PAGES = {"overview": "/", "jobs": "/jobs", "dead": "/dead", "workers": "/workers", "queues": "/queues"}


@pytest.mark.long
@pytest.mark.parametrize("scene", SCENES)
async def test_every_situation_has_its_pictures(chromium: Browser, scene: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    troubles: dict[str, list[str]] = {}
    async with memory_env() as env:
        visitor = Visitor(env, is_still=True)
        async with visitor.beside(), visitor.api.served() as (host, port):
            stage = Stage(visitor)
            await stage.open()
            await SCENES[scene](stage)
            await stage.breathe()
            pages = PAGES | ({} if stage.shown is None else {"job": f"/jobs/{stage.shown}"})
            for look, (size, scheme) in LOOKS.items():
                context = await chromium.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
                page = await context.new_page()
                said: list[str] = []
                page.on("console", partial(_note, said))
                for name, path in pages.items():
                    await page.goto(f"http://{host}:{port}/ui{path}", wait_until="load")
                    await page.screenshot(path=FOLDER / f"{name}-{scene}-{look}.png", full_page=True)
                    found = [*said, *await barriers(page, size, rules=CONTRAST if scheme == "dark" else AXE)]
                    said.clear()
                    if found:
                        troubles[f"{name}-{look}"] = found
                await context.close()
    assert troubles == {}


async def barriers(page: Page, size: dict[str, int], *, rules: str) -> list[str]:
    """Give what keeps people out, and whether the page is wider than its window."""
    await page.evaluate((BROWSER / "axe.js").read_text())
    found: list[str] = await page.evaluate(rules)
    width: Any = await page.evaluate("document.documentElement.scrollWidth")
    return [*found, *([f"{width} px wide"] if width > size["width"] else [])]


def _note(said: list[str], message: ConsoleMessage) -> None:
    if message.type in {"error", "warning"}:
        said.append(message.text)
