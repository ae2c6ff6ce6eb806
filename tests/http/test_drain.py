"""A drain to watch and to ask for, over the API and over the admin listener."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import cast

import httpx
import pytest

from app.control.drain import DrainControl
from app.control.render import Document
from app.domain.drain import DrainShown
from app.domain.errors import DriverUnavailable
from app.drivers.memory.driver import MemoryDriver
from app.http.drain_answers import Drain, FleetDrain
from app.lifecycle.shutdown import Shutdown
from app.lifecycle.status import HeldRun
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from tests.http.api import Api, code_of
from tests.http.test_probes import PROBES, listener

STAYS: dict[str, object] = {
    "state": "running",
    "role": "",
    "phase": None,
    "reason": None,
    "signal": None,
    "started_at": None,
    "deadline_at": None,
    "remaining_ms": None,
    "in_flight_count": 0,
    "in_flight": [],
    "completed": 0,
    "interrupted": 0,
    "abandoned": 0,
    "other": 0,
    "roles": {},
}


async def test_a_process_that_stays_says_so(api: Api) -> None:
    response = await api.client.get("/v1/drain")
    assert (response.status_code, response.json()) == (200, STAYS)


async def test_a_drain_is_begun_once_and_joined(api: Api) -> None:
    begun = await api.client.post("/v1/drain")
    assert begun.status_code == 202
    notice = api.leaving.notice
    assert notice is not None
    joined = await api.client.post("/v1/drain", json={})
    assert joined.status_code == 202
    assert api.leaving.notice is notice
    shown = Drain.model_validate_json((await api.client.get("/v1/drain")).content)
    assert (shown.state, shown.phase, shown.reason, shown.signal) == ("draining", "accept", "asked for by dev", None)
    assert shown.remaining_ms is not None
    assert 20_000 < shown.remaining_ms <= 25_000
    assert shown.started_at is not None
    assert shown.deadline_at is not None
    assert (shown.deadline_at - shown.started_at).total_seconds() == 25


async def test_strangers_neither_see_nor_begin_a_drain(locked: Api) -> None:
    async with locked.client_with({}) as stranger:
        assert (await stranger.get("/v1/drain")).status_code == 401
        assert (await stranger.post("/v1/drain")).status_code == 401
    assert not locked.leaving.is_draining


def test_runs_of_other_tenants_are_counted_and_not_shown(leaving: Shutdown) -> None:
    held = tuple(HeldRun(job_id=tenant, job_type="t", tenant=tenant) for tenant in ("acme", "other"))
    control = DrainControl(status=lambda: replace(leaving.status(), held=held), begin=leaving.request)
    for shown in (control.here(tenant="acme"), control.start(by="ann", tenant="acme")):
        assert shown["in_flight_count"] == 2
        assert [run["job_id"] for run in cast("list[Document]", shown["in_flight"])] == ["acme"]
    assert len(cast("list[Document]", control.here()["in_flight"])) == 2


@pytest.fixture
def leaving() -> Shutdown:
    return Shutdown(drain_seconds=25, telemetry=Telemetry(metrics=Metrics()))


@pytest.fixture
def admin(leaving: Shutdown) -> Iterator[httpx.Client]:
    control = DrainControl(status=leaving.status, begin=leaving.request)
    served = listener(replace(PROBES, drain=control))
    served.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{served.port}") as client:
        yield client
    served.stop()


def test_the_admin_listener_shows_and_begins_the_drain_without_a_loop(admin: httpx.Client, leaving: Shutdown) -> None:
    assert admin.get("/v1/drain").json() == STAYS
    begun = admin.post("/v1/drain", content=b"{}" * 100)
    assert (begun.status_code, begun.json()["reason"]) == (202, "asked for by this machine")
    assert leaving.is_draining
    assert admin.post("/v1/drain").status_code == 202


@pytest.mark.parametrize(
    "header", ["Origin", "Via", "Forwarded", "X-Forwarded-For", "x-forwarded-proto", "X-Envoy-External-Address"]
)
def test_who_speaks_for_others_cannot_drain_over_the_admin_listener(
    header: str, admin: httpx.Client, leaving: Shutdown
) -> None:
    assert admin.post("/v1/drain", headers={header: "http://example.org"}).status_code == 403
    assert not leaving.is_draining


def test_a_sidecar_that_hands_on_from_its_own_loopback_address_cannot_drain(
    admin: httpx.Client, leaving: Shutdown
) -> None:
    with httpx.Client(base_url=admin.base_url, transport=httpx.HTTPTransport(local_address="127.0.0.6")) as sidecar:
        assert sidecar.post("/v1/drain").status_code == 403
    assert not leaving.is_draining


def test_other_machines_cannot_drain_over_the_admin_listener(leaving: Shutdown) -> None:
    """An address of this machine that is not loopback stands for another machine's."""
    own = _own_address()
    control = DrainControl(status=leaving.status, begin=leaving.request)
    served = listener(replace(PROBES, drain=control), host="")
    served.start()
    try:
        url = f"http://{own}:{served.port}/v1/drain"
        assert httpx.get(url).status_code == 200
        assert httpx.post(url).status_code == (202 if own == "127.0.0.1" else 403)
        assert leaving.is_draining is (own == "127.0.0.1")
    finally:
        served.stop()


def _own_address() -> str:
    """Give an address of this machine by which others would reach it; loopback on one without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def test_of_threads_that_ask_at_once_one_begins_the_drain(leaving: Shutdown) -> None:
    ready, notices = threading.Barrier(8), list[object]()

    def ask(name: str) -> None:
        ready.wait()
        notices.append(leaving.request(name))

    threads = [threading.Thread(target=ask, args=(f"asker {number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(notices) == 8
    assert all(notice is leaving.notice for notice in notices)


# --- the fleet


async def test_the_fleet_is_shown_with_how_far_each_worker_is(each_api: Api) -> None:
    env = each_api.env
    stays, leaves, left = await env.register(), await env.register(), await env.register()
    drain = DrainShown(phase="inflight", reason="SIGTERM", left=timedelta(seconds=20))
    await env.driver.show_worker(leaves, wakeup="listen", drain=drain)
    await env.driver.close_worker(left)
    response = await each_api.client.get("/v1/drain?scope=fleet")
    assert response.status_code == 200
    shown = FleetDrain.model_validate_json(response.content)
    assert (shown.live, shown.draining, shown.phases) == (2, 1, {"accept": 0, "inflight": 1, "close": 0})
    assert [worker.id for worker in shown.workers] == [str(left), str(leaves), str(stays)]
    facts = shown.workers[1]
    assert (facts.drain_phase, facts.drain_reason) == ("inflight", "SIGTERM")
    assert facts.drain_deadline_at == env.now() + timedelta(seconds=20)
    assert (await each_api.client.get("/v1/drain?scope=moon")).status_code == 422


async def test_a_worker_is_asked_to_drain_by_its_id(each_api: Api) -> None:
    env = each_api.env
    worker, left = await env.register(), await env.register()
    asked = await each_api.client.post(f"/v1/workers/{worker}/drain")
    assert (asked.status_code, asked.json()["drain_asked_by"]) == (202, "dev")
    assert (await each_api.client.get(f"/v1/workers/{worker}")).json() == asked.json()
    assert (await each_api.client.post(f"/v1/workers/{worker}/drain", json={})).status_code == 202
    await env.driver.close_worker(left)
    gone = await each_api.client.post(f"/v1/workers/{left}/drain")
    assert (gone.status_code, gone.json()["code"]) == (409, "LEASE_LOST")


@pytest.mark.parametrize("unknown", ["999999", "0", "-1", "x", "1e3", "99999999999999999999", "2147483648"])
async def test_a_worker_nobody_knows_is_not_found(each_api: Api, unknown: str) -> None:
    assert code_of(await each_api.client.get(f"/v1/workers/{unknown}")) == (404, "NOT_FOUND")
    missing = await each_api.client.post(f"/v1/workers/{unknown}/drain")
    assert (missing.status_code, missing.json()["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "spelling", ["0{}", "00{}", "%2B{}", "+{}", "{}%20", "%20{}", "{}.0", "{}_", "0x{}", "{}%E2%80%8B"]
)
async def test_a_worker_has_one_spelling(each_api: Api, spelling: str) -> None:
    worker = await each_api.env.register()
    for other in (spelling.format(worker), chr(0x660 + worker % 10) if worker < 10 else "\u0661"):
        missing = await each_api.client.post(f"/v1/workers/{other}/drain")
        assert (missing.status_code, missing.json()["code"]) == (404, "NOT_FOUND")
    (view,) = await each_api.env.driver.workers()
    assert view.drain_asked_at is None


async def test_a_worker_that_was_lost_is_not_said_to_have_left(each_api: Api) -> None:
    env = each_api.env
    worker = await env.register()
    await env.vanish()
    for _ in range(2):
        refused = await each_api.client.post(f"/v1/workers/{worker}/drain")
        assert code_of(refused) == (409, "LEASE_LOST")
        assert f"worker {worker} was lost" in refused.json()["detail"]
        assert "left" not in refused.text
        await env.driver.reap()


async def test_a_worker_that_cannot_be_asked_through_the_store_is_asked_itself(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_args: object, **_kwargs: object) -> None:
        raise DriverUnavailable("db.internal refused", fix="look at db.internal")

    monkeypatch.setattr(MemoryDriver, "ask_drain", fail)
    refused = await api.client.post("/v1/workers/1/drain")
    assert code_of(refused) == (503, "DRIVER_UNAVAILABLE")
    assert "POST /v1/drain on its own admin port" in refused.json()["fix"]
    assert "internal" not in refused.text
    assert (await api.client.post("/v1/workers/01/drain")).status_code == 404


async def test_only_operators_drain_a_worker(locked: Api) -> None:
    async with locked.client_with({}) as stranger:
        assert (await stranger.post("/v1/workers/1/drain")).status_code == 401


@pytest.mark.parametrize(("fleet", "status"), [({"scope": "fleet"}, 200), (None, 503)])
def test_the_admin_listener_shows_the_fleet_as_far_as_the_store_answers(
    fleet: dict[str, object] | None, status: int
) -> None:
    served = listener(replace(PROBES, fleet=lambda: fleet))
    served.start()
    try:
        assert httpx.get(f"http://127.0.0.1:{served.port}/v1/drain?scope=fleet").status_code == status
    finally:
        served.stop()
