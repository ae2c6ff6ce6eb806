"""The menu says what asks for somebody: beside the entry that leads there, in words, and cheaply."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import cast

import pytest

from app.control.fleet import FleetControl
from app.control.outbox import OutboxControl
from app.control.overview import OverviewControl
from app.dashboard.menu import KEPT_SECONDS, Mark, Menu
from app.dashboard.services import DashboardServices
from app.domain.api_key import Identity, Scope
from app.domain.drain import DrainShown
from app.domain.errors import DriverUnavailable
from app.drivers.outbox import outbox_of
from app.drivers.protocol import JobDriver
from tests.dashboard.visitor import Visitor
from tests.roles.harness import Flaky
from tests.support.drivers import DriverEnv, memory_env
from tests.support.outbox import outbox_env

LEAVING = DrainShown(phase="inflight", reason="SIGTERM", left=timedelta(seconds=20))


class Services:
    """Those of the menu."""

    def __init__(self, env: DriverEnv) -> None:
        self.driver = Flaky(env.driver)
        driver = cast("JobDriver", self.driver)
        self.overview = OverviewControl(driver)
        self.fleet = FleetControl(driver)
        self.outbox = OutboxControl(outbox_of(env.driver), driver=driver)


def entry(page: str, path: str) -> str:
    """Give what an entry of the menu reads like, hidden words included."""
    found = re.search(rf'<a href="/ui/{path}"[^>]*>(.*?)</a>', page)
    assert found is not None
    return re.sub("<[^>]*>", "", found[1])


async def test_drains_and_stuck_rows_stand_beside_their_entries_of_every_page(visitor: Visitor) -> None:
    leaves, _, left = [await visitor.env.register() for _ in range(3)]
    for leaving in (leaves, left):
        await visitor.env.driver.show_worker(leaving, wakeup=None, drain=LEAVING)
    await visitor.env.driver.close_worker(left)
    async with outbox_env(visitor.env) as outbox:
        await outbox.staged(payload="{")
        await outbox.publish()
        for path in ("/schedules", "/workers", "/"):
            page = await visitor.see(path)
            assert entry(page, "workers") == "Workers 1 draining"
            assert entry(page, "outbox") == "Outbox 1 stuck until somebody looks"
            assert page.count('id="menu-') == page.count('id="menu-1"') + 2, "three regions that change in place"


async def test_the_menu_is_read_once_in_a_few_seconds_for_all() -> None:
    async with memory_env() as env:
        services, now = Services(env), [100.0]
        menu = Menu(cast("DashboardServices", services), monotonic=lambda: now[0])
        worker = await env.register()
        await menu.look()
        assert menu.marks() == {}
        await env.driver.show_worker(worker, wakeup=None, drain=LEAVING)
        now[0] += KEPT_SECONDS
        await menu.look()
        assert (menu.marks(), services.driver.calls) == ({}, ["workers"])
        now[0] += 0.1
        await menu.look()
        assert menu.marks() == {"workers": Mark("draining", "1 draining")}
        services.driver.before["workers"] = DriverUnavailable("gone", fix="wait")
        now[0] += KEPT_SECONDS + 0.1
        await menu.look()
        assert menu.marks() == {}, "what is not known is not said"


async def test_no_page_waits_for_its_menu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.dashboard.menu._MOST_SECONDS", 0.01)
    async with memory_env() as env:
        services = Services(env)
        services.driver.hold["workers"] = asyncio.Event().wait
        menu = Menu(cast("DashboardServices", services))
        await menu.look()
        assert menu.marks() == {}


async def test_who_sees_one_tenant_is_told_nothing_of_all(visitor: Visitor) -> None:
    await visitor.env.driver.show_worker(await visitor.env.register(), wakeup=None, drain=LEAVING)
    assert entry(await visitor.see("/schedules"), "workers") == "Workers 1 draining"
    visitor.api.act_as(Identity(name="mine", tenant="mine", scopes=frozenset(Scope)))
    assert entry(await visitor.see("/schedules"), "workers") == "Workers"
