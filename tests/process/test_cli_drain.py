"""`outlast drain`: a real process leaves, is waited for, and is seen leaving."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from app.cli.acting import actor
from app.domain.drain import DrainShown
from tests.process.conftest import Outlast
from tests.support.processes import DRAIN, LONG_LEASE, Fleet, Service, eventually
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
    assert "worker: running, 1 in flight" in outlast("drain", *port_of(worker), "status").out
    assert outlast("drain", *port_of(worker), "--json", "status").document()["in_flight_count"] == 1
    assert outlast("drain", "--admin-port", "1", "status", *port_of(worker), "--json").document() == status
    ended = outlast("drain", "--wait", *port_of(worker), "--json")
    assert "worker: draining (" in ended.err
    assert ", asked for by this machine, " in ended.err
    last = ended.document()
    assert (last["state"], last["remaining_ms"], last["in_flight"]) == ("stopped", 0, [])
    assert (last["role"], last["reason"]) == ("worker", "asked for by this machine")
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
    last = outlast("drain", "--wait", "--timeout", "0.3", *port_of(worker), "--json", code=3).document()
    assert (last["state"], last["phase"], last["in_flight_count"]) == ("draining", "inflight", 1)
    assert [(run["job_id"], run["acknowledged"]) for run in last["in_flight"]] == [(str(job_id), False)]
    fleet.ledger.open("done")
    assert await worker.gone() == 0


def test_nobody_there_is_69(outlast: Outlast) -> None:
    refused = outlast("drain", "--admin-port", "1", code=69)
    assert "no process answers" in refused.err
    assert "--admin-port" in refused.err
    for words in (("status", "--admin-port", "1"), ("--admin-port", "1", "status")):
        asked = outlast("drain", *words, code=69)
        assert asked.out == ""
        assert "127.0.0.1:1/" in asked.err


@pytest.mark.parametrize("option", [("--wait",), ("--timeout", "1")])
def test_waiting_for_a_status_is_a_misuse(option: tuple[str, ...], outlast: Outlast) -> None:
    assert "a subcommand" in outlast("drain", *option, "status", code=2).err


async def test_a_worker_is_listed_asked_to_leave_by_its_id_and_waited_for(
    fleet: Fleet, store: Store, outlast: Outlast
) -> None:
    """The worker is woken for a renewal: it does not take a heartbeat's interval until it hears."""
    cli = outlast.on(fleet.url)
    worker = await fleet.worker(OUTLAST_LEASE_SECONDS="60", OUTLAST_HEARTBEAT_SECONDS="20").ready()
    job_id = await store.enqueue("faults.hold", {"gate": "never"}, max_attempts=1)
    await eventually(lambda: fleet.ledger.events("effect") != [], "it runs")
    listed = (await asyncio.to_thread(cli, "workers", "list", "--json")).document()
    assert (listed["running"], listed["drain_phase"]) == (1, None)
    assert "running" in (await asyncio.to_thread(cli, "workers", "list")).out
    ended = (await asyncio.to_thread(cli, "workers", "drain", listed["id"], "--wait", "--json")).document()
    assert (ended["drain_asked_by"], ended["drain_reason"]) == (actor(), f"asked for by {actor()}")
    assert ended["closed_at"] is not None
    assert await worker.gone() == 0
    again = await asyncio.to_thread(cli, "workers", "drain", listed["id"], "--wait", "--json")
    assert again.document() | {"heartbeat_age_ms": 0} == ended | {"heartbeat_age_ms": 0}
    assert again.err == f"worker {listed['id']} has left\n"
    assert (await store.view(job_id)).counters.interrupts == 1
    assert (await asyncio.to_thread(cli, "workers", "drain", listed["id"], code=5)).err.startswith("error: LEASE_LOST")
    for unknown in ("4711", f"0{listed['id']}", f"+{listed['id']}"):
        assert "NOT_FOUND" in (await asyncio.to_thread(cli, "workers", "drain", unknown, code=4)).err


async def test_a_worker_that_was_lost_is_not_said_to_have_left(fleet: Fleet, store: Store, outlast: Outlast) -> None:
    """Neither before it was asked nor while it is waited for; one that abandoned its work in a drain has left."""
    cli = outlast.on(fleet.url)
    worker = await fleet.worker(**LONG_LEASE).ready()
    waiting_for = (await store.driver.workers())[0].id
    worker.stop()  # it hears nothing of being asked
    waiting = asyncio.create_task(asyncio.to_thread(cli, "workers", "drain", str(waiting_for), "--wait", code=5))
    await eventually(lambda: _is_asked(store), "it was asked")
    worker.kill()
    await store.fetch("update outlast.worker set lease_until = outlast.clock(), lease_ms = 1000")
    await store.driver.reap()
    lost = await waiting
    assert lost.err.startswith(f"error: LEASE_LOST: worker {waiting_for} was lost")
    for words in ((), ("--wait",)):
        again = await asyncio.to_thread(cli, "workers", "drain", str(waiting_for), *words, code=5)
        assert again.err == lost.err
    assert (await asyncio.to_thread(cli, "workers", "list")).out.splitlines()[-1].endswith("lost")
    await store.driver.show_worker(waiting_for, wakeup=None, drain=DrainShown(phase="close"))
    left = await asyncio.to_thread(cli, "workers", "drain", str(waiting_for), "--wait")
    assert left.err == f"worker {waiting_for} has left\n"
    assert left.out.splitlines()[-1].endswith("left")


async def _is_asked(store: Store) -> bool:
    return (await store.driver.workers())[0].drain_asked_by == actor()


def test_while_the_store_is_away_the_worker_itself_is_to_be_asked(outlast: Outlast) -> None:
    cli = outlast.on("postgresql://outlast@/outlast?host=/nowhere")
    refused = cli("workers", "drain", "17", "--wait", code=69)
    assert refused.err.startswith("error: DRIVER_UNAVAILABLE: ")
    assert "`outlast drain` on its machine" in refused.err


async def test_a_wait_for_a_worker_that_does_not_leave_in_time_is_3(
    fleet: Fleet, store: Store, outlast: Outlast
) -> None:
    cli = outlast.on(fleet.url)
    worker = await fleet.worker(OUTLAST_DRAIN_SECONDS="30").ready()
    await store.enqueue("faults.deaf", {"gate": "done"})
    await eventually(lambda: fleet.ledger.events("effect") != [], "it runs")
    (own,) = await store.driver.workers()
    waited = await asyncio.to_thread(cli, "workers", "drain", str(own.id), "--wait", "--timeout", "1", code=3)
    assert "still there" in waited.err
    fleet.ledger.open("done")
    assert await worker.gone() == 0
