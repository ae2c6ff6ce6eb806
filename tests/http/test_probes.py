"""The probes, on the API's listener and on the admin listener."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import httpx
import pytest

from app.control.drain import DrainControl
from app.domain.errors import DriverUnavailable, SchemaOutdated, SettingsInvalid
from app.http.admin import AdminListener, AdminProbes, on_loop
from app.http.headers import SECURITY_HEADERS
from app.http.probes import PING_SECONDS, Readiness, Trouble, check_readiness
from app.lifecycle.shutdown import Shutdown
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from tests.http.api import Api


async def nothing() -> None:
    """The store answers."""


async def test_a_process_that_is_well_says_so(locked: Api) -> None:
    async with locked.client_with({}) as stranger:
        assert (await stranger.get("/livez")).text == "ok\n"
        assert (await stranger.get("/startupz")).text == "ok\n"
        assert (await stranger.get("/readyz")).json() == {"status": "ready"}


async def test_a_draining_process_is_alive_and_not_ready(api: Api) -> None:
    api.is_draining = True
    assert (await api.client.get("/livez")).status_code == 200
    response = await api.client.get("/readyz")
    assert (response.status_code, response.json()) == (503, {"status": "not_ready", "reason": "draining"})


async def test_a_starting_process_is_alive_and_not_ready(api: Api) -> None:
    api.is_started = False
    assert (await api.client.get("/livez")).status_code == 200
    assert (await api.client.get("/startupz")).status_code == 503
    assert (await api.client.get("/readyz")).json() == {"status": "not_ready", "reason": "starting"}


async def test_liveness_does_not_ask_the_store(api: Api) -> None:
    await api.env.driver.close()
    assert (await api.client.get("/livez")).status_code == 200
    assert (await api.client.get("/startupz")).status_code == 200
    response = await api.client.get("/readyz")
    assert (response.status_code, response.json()) == (503, {"status": "not_ready", "reason": "database"})


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (DriverUnavailable("db.internal refused", fix="-"), Trouble.DATABASE),
        (SchemaOutdated("db.internal is old", fix="-"), Trouble.SCHEMA),
    ],
)
async def test_readiness_names_the_kind_of_trouble_only(error: Exception, trouble: Trouble) -> None:
    async def fail() -> None:
        raise error

    readiness = await check_readiness(ping=fail, is_started=lambda: True, is_draining=lambda: False)
    assert readiness.trouble is trouble
    assert readiness.document == {"status": "not_ready", "reason": trouble.value}


async def test_a_store_that_hangs_is_not_waited_for() -> None:
    async def hang() -> None:
        await asyncio.Event().wait()

    loop = asyncio.get_running_loop()
    began = loop.time()
    readiness = await check_readiness(ping=hang, is_started=lambda: True, is_draining=lambda: False)
    assert readiness.trouble is Trouble.DATABASE
    assert PING_SECONDS <= loop.time() - began < 10 * PING_SECONDS


async def test_metrics_and_versions_need_the_key(locked: Api) -> None:
    await locked.post()
    metrics = await locked.client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "# TYPE outlast_jobs_total counter" in metrics.text
    assert (await locked.client.get("/version")).json() == {"version": "0.0.0", "code_version": "1.0.0"}


# --- the admin listener


STUCK = Readiness(trouble=Trouble.LOOP)
LEAVING = Shutdown(drain_seconds=25, telemetry=Telemetry(metrics=Metrics()))
PROBES = AdminProbes(
    is_live=lambda: True,
    is_started=lambda: True,
    readiness=Readiness,
    metrics=lambda: b"outlast_loop_lag_seconds 0\n",
    drain=DrainControl(status=LEAVING.status, begin=LEAVING.request),
    fleet=lambda: {"scope": "fleet"},
    version={"version": "0.0.0", "code_version": "1.0.0"},
)


def listener(probes: AdminProbes = PROBES, *, host: str = "127.0.0.1", port: int = 0) -> AdminListener:
    return AdminListener(probes, host=host, port=port)


@pytest.fixture
def admin() -> AdminListener:
    return listener()


def test_the_admin_listener_answers_without_a_loop(admin: AdminListener) -> None:
    admin.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{admin.port}") as client:
            assert client.get("/livez").text == "ok\n"
            assert client.get("/startupz?x=1").status_code == 200
            assert client.get("/readyz").json() == {"status": "ready"}
            assert client.get("/metrics").text == "outlast_loop_lag_seconds 0\n"
            assert client.get("/version").json() == {"version": "0.0.0", "code_version": "1.0.0"}
            assert client.get("/v1/jobs").status_code == 404
            assert client.head("/livez").content == b""
            for name, value in SECURITY_HEADERS:
                assert client.get("/nothing").headers[name] == value
    finally:
        admin.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{admin.port}/livez")
    admin.stop()


def test_the_admin_listener_says_when_a_process_is_unwell() -> None:
    unwell = replace(PROBES, is_live=lambda: False, is_started=lambda: False, readiness=lambda: STUCK)
    sick = listener(unwell)
    sick.start()
    try:
        for path in ("/livez", "/startupz", "/readyz"):
            assert httpx.get(f"http://127.0.0.1:{sick.port}{path}").status_code == 503
    finally:
        sick.stop()


def test_a_port_that_is_taken_is_said_in_a_sentence(admin: AdminListener) -> None:
    admin.start()
    try:
        second = listener(port=admin.port)
        with pytest.raises(SettingsInvalid, match="OUTLAST_ADMIN_BIND"):
            second.start()
    finally:
        admin.stop()


async def test_readiness_is_asked_across_threads() -> None:
    async def check() -> Readiness:
        return await check_readiness(ping=nothing, is_started=lambda: True, is_draining=lambda: False)

    ask = on_loop(asyncio.get_running_loop(), check, otherwise=STUCK)
    assert await asyncio.to_thread(ask) == Readiness()


async def test_a_blocked_loop_is_not_ready() -> None:
    async def check() -> Readiness:
        return Readiness()

    ask = on_loop(asyncio.get_running_loop(), check, otherwise=STUCK, timeout_seconds=0.05)
    answers: list[Readiness] = []
    thread = threading.Thread(target=lambda: answers.append(ask()))
    thread.start()
    thread.join()  # blocks the loop
    assert answers == [STUCK]


def test_a_closed_loop_is_not_ready() -> None:
    async def check() -> Readiness:
        return Readiness()

    loop = asyncio.new_event_loop()
    loop.close()
    assert on_loop(loop, check, otherwise=STUCK)() == STUCK


async def test_a_store_that_is_away_has_no_answer() -> None:
    async def check() -> Readiness:
        raise DriverUnavailable("away", fix="wait")

    ask = on_loop(asyncio.get_running_loop(), check, otherwise=STUCK)
    assert await asyncio.to_thread(ask) == STUCK
