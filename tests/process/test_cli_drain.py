"""`outlast drain`: a real process leaves, is waited for, and is seen leaving."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tests.process.conftest import Outlast
from tests.support.processes import DRAIN, Fleet, Service, eventually
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(60)]


def port_of(service: Service) -> tuple[str, str]:
    return "--admin-port", str(urlsplit(service.admin).port)


async def test_a_process_is_drained_and_waited_for(fleet: Fleet, store: Store, outlast: Outlast) -> None:
    worker = await fleet.worker().ready()
    await store.enqueue("faults.hold", {"gate": "never"})
    await eventually(lambda: fleet.ledger.events("effect") != [], "it runs")
    status = outlast("drain", "status", *port_of(worker), "--json").document()
    assert (status["state"], status["role"], status["in_flight_count"]) == ("running", "worker", 1)
    assert "worker: running, 1 in flight" in outlast("drain", "status", *port_of(worker)).out
    ended = outlast("drain", "--wait", *port_of(worker), "--json")
    assert "worker: draining (" in ended.err
    assert ", asked for by this machine, " in ended.err
    assert ended.document()["state"] == "stopped"
    assert await worker.gone(DRAIN) == 0


async def test_a_wait_that_is_too_short_is_3_and_what_is_held_is_named(
    fleet: Fleet, store: Store, outlast: Outlast
) -> None:
    worker = await fleet.worker(OUTLAST_DRAIN_SECONDS="30").ready()
    job_id = await store.enqueue("faults.deaf", {"gate": "done"})
    await eventually(lambda: fleet.ledger.events("effect") != [], "it runs")
    waited = outlast("drain", "--wait", "--timeout", "0.3", *port_of(worker), code=3)
    assert f"faults.deaf {job_id}" in waited.out
    assert "has not heard" in waited.out
    fleet.ledger.open("done")
    assert await worker.gone() == 0


def test_nobody_there_is_69(outlast: Outlast) -> None:
    refused = outlast("drain", "--admin-port", "1", code=69)
    assert "no process answers" in refused.err
    assert "--admin-port" in refused.err
    assert outlast("drain", "status", "--admin-port", "1", code=69).out == ""
