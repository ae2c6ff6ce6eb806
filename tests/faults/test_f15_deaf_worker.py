"""F15: wake-ups are a hint. Without them polling finds every job; when they come back, so does the promptness."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.state import State
from tests.faults.history import check
from tests.support.processes import Fleet, Service, client_of, eventually
from tests.support.proxy import Proxy, proxy_to
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(120)]

# No poll of these comes within a test: what starts was waked.
_NEVER_POLLS = {"OUTLAST_POLL_SECONDS": "600", "OUTLAST_SWEEP_SECONDS": "600"}
_DETECTED_SECONDS = 30.0


async def _wakeup(store: Store, worker: Service) -> str | None:
    """Give the mode that the worker's row shows, once its metric shows the same."""
    (row,) = await store.fetch("select wakeup from outlast.worker where pid = $1", worker.pid)
    metrics = await worker.metrics()
    live = [
        dict(labels)["mode"] for (name, labels), value in metrics.items() if name == "outlast_wakeup_mode" and value
    ]
    return str(row["wakeup"]) if live == [row["wakeup"]] else None


async def _shows(store: Store, worker: Service, mode: str, within: float = 30.0) -> None:
    async def shows() -> bool:
        return await _wakeup(store, worker) == mode

    await eventually(shows, f"the worker shows {mode}", within)


async def test_a_worker_that_never_hears_anything_polls_and_loses_nothing(fleet: Fleet, store: Store) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:9/nothing"
    worker = await fleet.worker(OUTLAST_LISTEN_URL=nowhere).ready()
    await _shows(store, worker, "polling")
    jobs = [await store.enqueue("faults.hold") for _ in range(50)]
    await store.all_until(jobs, State.DONE)
    await check(store, fleet.ledger.events(), acked=jobs)


async def test_a_closed_connection_is_replaced_and_what_came_meanwhile_is_found(fleet: Fleet, store: Store) -> None:
    async with proxy_to(fleet.url, fleet.folder) as proxy:
        worker = await fleet.worker(OUTLAST_LISTEN_URL=proxy.url, **_NEVER_POLLS).ready()
        await _shows(store, worker, "listen")
        proxy.cut()
        await _shows(store, worker, "polling")
        missed = await store.enqueue("faults.hold")
        proxy.heal()
        await store.until(missed, State.DONE)
        await _shows(store, worker, "listen")
        prompt = [await store.enqueue("faults.hold") for _ in range(3)]
        await store.all_until(prompt, State.DONE)
        assert len(worker.said("listener.lost")) == 1, "said once a loss"
    await check(store, fleet.ledger.events(), acked=[missed, *prompt])


@pytest.mark.soak
@pytest.mark.parametrize("how", ["silent", "dropped"])
async def test_a_connection_that_stays_and_brings_nothing_is_found_out_by_its_own_ping(
    fleet: Fleet, store: Store, how: str
) -> None:
    async with proxy_to(fleet.url, fleet.folder) as proxy:
        worker = await fleet.worker(OUTLAST_LISTEN_URL=proxy.url, **_NEVER_POLLS).ready()
        await _shows(store, worker, "listen")
        _break(proxy, how, is_broken=True)
        missed = await store.enqueue("faults.hold")
        await _shows(store, worker, "polling", within=2 * _DETECTED_SECONDS)
        _break(proxy, how, is_broken=False)
        await store.until(missed, State.DONE)
        await _shows(store, worker, "listen")
        await store.until(await store.enqueue("faults.hold"), State.DONE)
    await check(store, fleet.ledger.events(), acked=[missed])


def _break(proxy: Proxy, how: str, *, is_broken: bool) -> None:
    if how == "silent":
        proxy.is_black_hole = is_broken
    else:
        proxy.drops_notifications = is_broken


async def test_the_mode_is_shown_over_http(fleet: Fleet, store: Store) -> None:
    service = await fleet.run(OUTLAST_LISTEN_URL="postgresql://nobody@127.0.0.1:9/nothing").ready()
    await _shows(store, service, "polling")
    async with client_of(service) as client:
        items: list[dict[str, Any]] = (await client.get("/v1/workers")).json()["items"]
    assert [one["wakeup"] for one in items] == ["polling"]
