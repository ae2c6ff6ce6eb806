"""What a browser sees: pages opened at a size and in a colour scheme, with every complaint of the browser noted."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import Browser, Page

from app.domain.outcome import Completed, DeadLettered, Retried
from app.domain.state import DeadReason
from tests.browser.fetch import BROWSER
from tests.dashboard.visitor import Visitor
from tests.http.api import failure
from tests.support.drivers import NAME, QUEUE

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 800}
POLYGLOT = """jaVasCript:/*-/*`/*\\`/*'/*"/**/(/* */oNcliCk=alert(1) )//</scRipt/--!>\\x3csVg/<sVg/oNloAd=alert(2)//>"""
_NOTE_VIOLATIONS = """
window.violations = [];
addEventListener("securitypolicyviolation", (e) => window.violations.push(`${e.violatedDirective} ${e.blockedURI}`));
"""
_AXE = """async () => {
  const found = await axe.run(document, {runOnly: RULES, resultTypes: ["violations"]});
  return found.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 160)).slice(0, 3).join(" | ")}`);
}"""
AXE = _AXE.replace("RULES", '["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]')
# What another colour scheme can change.
CONTRAST = _AXE.replace("RULES", '{type: "rule", values: ["color-contrast"]}')

# What is pointed at and is not there, and what is there twice.
DANGLING = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const ids = all("[id]").map((each) => each.id);
  const names = ["for", "popovertarget", "aria-labelledby", "aria-describedby", "aria-controls", "list"];
  const asked = names.flatMap((name) => all(`[${name}]`).flatMap((each) => each.getAttribute(name).split(" ")));
  const links = all("a[href^='#'], use").map((each) => decodeURIComponent(each.getAttribute("href").slice(1)));
  const absent = [...new Set([...asked, ...links])].filter((each) => !ids.includes(each));
  const twice = ids.filter((each, at) => ids.indexOf(each) !== at);
  return [...absent.map((each) => `nothing is #${each}`), ...twice.map((each) => `twice #${each}`)];
}"""


class Sight:
    """A browser in front of a service; `complaints` are what it said about pages since they were last taken."""

    def __init__(self, visitor: Visitor, browser: Browser, address: str) -> None:
        self.visitor = visitor
        self.complaints: list[str] = []
        self.ids: dict[str, str] = {}
        self.key_id = ""
        self._browser = browser
        self._address = address

    @asynccontextmanager
    async def there(self) -> AsyncIterator[Sight]:
        await self._fill()
        yield self
        for context in self._browser.contexts:
            await context.close()

    @asynccontextmanager
    async def page(
        self,
        path: str,
        *,
        size: dict[str, int] = WIDE,
        scheme: Literal["light", "dark"] = "light",
        scripts: bool = True,
    ) -> AsyncIterator[Page]:
        """Open a page of the dashboard."""
        async with self._opened(size=size, scheme=scheme, scripts=scripts) as page:
            await self._go(page, path)
            yield page
            if scripts:
                self.complaints += await page.evaluate("window.violations ?? []")

    async def tour(
        self, *, size: dict[str, int] = WIDE, scheme: Literal["light", "dark"] = "light"
    ) -> AsyncIterator[tuple[str, Page]]:
        """Open every page, one after the other in one window."""
        async with self._opened(size=size, scheme=scheme, scripts=True) as page:
            for path in self.paths():
                await self._go(page, path)
                yield path, page
                self.complaints += await page.evaluate("window.violations ?? []")

    async def _go(self, page: Page, path: str) -> None:
        await page.goto(f"{self._address}/ui{path}", wait_until="load")

    @asynccontextmanager
    async def _opened(
        self, *, size: dict[str, int], scheme: Literal["light", "dark"], scripts: bool
    ) -> AsyncIterator[Page]:
        context = await self._browser.new_context(
            viewport=size,  # type: ignore[arg-type]  # a TypedDict of the same
            color_scheme=scheme,
            java_script_enabled=scripts,
        )
        page = await context.new_page()
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))
        page.on("dialog", lambda dialog: self._note("error", f"a dialog: {dialog.message}"))
        await page.add_init_script(_NOTE_VIOLATIONS)
        yield page
        await context.close()

    def paths(self) -> list[str]:
        """Give the address of every page."""
        jobs = [f"/jobs/{job_id}" for job_id in self.ids.values()]
        group = f"/dead?group={NAME}~terminal~ValueError~BROKEN"
        lists = ["/", "/jobs", "/jobs?q=state:held", "/jobs?q=colour:red", "/queues", f"/queues/{QUEUE}", "/schedules"]
        rest = ["/workers", "/types", f"/types/{NAME}", "/events", "/outbox", "/bulk", "/system", "/audit", "/login"]
        rest += ["/keys", f"/keys/{self.key_id}", "/docs", "/docs/listJobs", "/docs/enqueueJob"]
        rest += ["/webhooks", f"/webhooks/{self.webhook_id}"]
        return [*lists, "/dead", group, *rest, *jobs, "/nothing"]

    async def barriers(self, page: Page) -> list[str]:
        """Give what keeps people out, as far as a program sees it, in light and in dark colours."""
        await page.evaluate((BROWSER / "axe.js").read_text())
        found: list[str] = await page.evaluate(AXE)
        await page.emulate_media(color_scheme="dark")
        found += await page.evaluate(CONTRAST)
        found += await page.evaluate(DANGLING)
        return found

    async def keep(self, page: Page, name: str) -> None:
        """Keep a picture where PICTURES says, to look at."""
        folder = os.environ.get("PICTURES")
        if folder:
            await page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)

    def _note(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.complaints.append(text)

    async def _fill(self) -> None:
        """Put a job in every state that needs no worker at work, with text that would be markup if it could."""
        api, odd = self.visitor.api, POLYGLOT
        fields: dict[str, Any] = {"payload": {odd: odd}, "tags": [odd[:60]], "meta": {"m": odd}}
        done = await api.post(**fields, idempotency_key=odd)
        await api.finish(Completed(result='{"ok": "https://a.example/x"}'))
        dead = await api.post(**fields)
        await api.finish(DeadLettered(error=failure("BROKEN"), reason=DeadReason.TERMINAL))
        retried = await api.post(**fields)
        await api.finish(Retried(error=failure(), delay=timedelta(hours=1)))
        delayed = await api.post(delay_ms=3_600_000)
        running = await api.post()
        await api.claim()
        ready = await api.post()
        await self.visitor.act(f"/jobs/{delayed['id']}/event", {"name": "order.approved", "key": odd, "payload": "1"})
        await self.visitor.act(f"/queues/{QUEUE}/pause", {"reason": odd})
        made = await api.client.post("/v1/webhooks", json={"label": odd[:60], "url": "https://hooks.example.com/x"})
        self.webhook_id = made.json()["id"]
        told = await api.post(delay_ms=3_600_000, callback={"secret_id": self.webhook_id})
        await api.client.post(f"/v1/jobs/{told['id']}/cancel", json={"reason": odd})
        key = await api.client.post("/v1/api-keys", json={"label": odd[:100], "scopes": ["jobs:read"], "reason": odd})
        self.key_id = key.json()["id"]
        self.ids = {
            name: str(job["id"])
            for name, job in {
                "done": done,
                "dead": dead,
                "retried": retried,
                "delayed": delayed,
                "running": running,
                "ready": ready,
                "told": told,
            }.items()
        }
