"""A rollout as Kubernetes does it, with processes: nobody's request is lost, and no pod needs its SIGKILL."""

from __future__ import annotations

import asyncio
from itertools import count
from uuid import UUID

import httpx
import pytest

from app.domain.job import JobId
from app.domain.state import State
from tests.support.pods import Pods, Timeline
from tests.support.processes import DRAIN, Fleet, client_of, eventually, report
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(180)]

PRE_STOP = 0.6
API = Timeline(lag=0.3, pre_stop=PRE_STOP, grace=PRE_STOP + DRAIN + 10)
WORKER = Timeline(lag=0.0, pre_stop=0.0, grace=DRAIN + 10)


class Callers:
    """Clients that enqueue one job after the other, each by whatever pod gets traffic."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods
        self._clients: dict[str, httpx.AsyncClient] = {}
        self._numbers = count()
        self.accepted: list[JobId] = []
        self.refused: list[str] = []
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            number = next(self._numbers)
            pod = self._pods.endpoints[number % len(self._pods.endpoints)]
            client = self._clients.setdefault(pod.name, client_of(pod))
            body = {"name": "faults.hold", "payload": {"gate": f"never-{number}"}}
            try:
                response = await client.post("/v1/jobs", json=body)
            except httpx.HTTPError as error:
                self.refused.append(f"{pod.name}: {error!r}")
                continue
            if response.is_success:
                self.accepted.append(JobId(UUID(response.json()["id"])))
            else:
                self.refused.append(f"{pod.name}: {response.status_code} {response.text}")

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()


@pytest.mark.long
async def test_a_rollout_of_the_api_loses_no_request_and_kills_no_pod(fleet: Fleet, store: Store) -> None:
    pods = Pods(fleet, "api", API)
    for _ in range(2):
        await pods.add()
    callers = Callers(pods)
    ended = []
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(callers.run())
            for old in list(pods.endpoints):
                # One more at a time, as `maxUnavailable: 0` and `maxSurge: 1` say.
                served = len(callers.accepted)
                await pods.add()
                await eventually(lambda at=served: len(callers.accepted) > at + 20, "requests go on")  # type: ignore[misc]
                ended.append(await pods.delete(old))
            callers.is_over = True
    finally:
        await callers.close()
    report(f"{len(callers.accepted)} requests; gone after {[f'{pod.took:.2f}' for pod in ended]} s")
    assert callers.refused == []
    assert [(pod.code, pod.was_killed) for pod in ended] == [(0, False)] * 2
    assert len(set(callers.accepted)) == len(callers.accepted) > 40
    states = {view.state for view in await store.all_until(callers.accepted[::10], State.READY)}
    assert states == {State.READY}


async def test_worker_pods_scaled_away_need_no_sigkill_whatever_their_bodies_do(fleet: Fleet, store: Store) -> None:
    pods = Pods(fleet, "worker", WORKER)
    pod = await pods.add()
    heeding = await store.enqueue("faults.hold", {"gate": "never"}, max_attempts=1)
    deaf = await store.enqueue("faults.deaf", {"gate": "never"}, max_attempts=1)
    await eventually(lambda: len(fleet.ledger.events("effect")) == 2, "both run")
    ended = await pods.delete(pod)
    assert (ended.code, ended.was_killed) == (70, False)
    assert ended.took < WORKER.grace
    counters = (await store.view(heeding)).counters
    assert (await store.view(heeding)).state is State.READY
    assert (counters.attempt, counters.interrupts, counters.crashes) == (0, 1, 0)
    fleet.worker()

    async def is_claimed_again() -> bool:
        return (await store.view(deaf)).counters.claim_no == 2

    await eventually(is_claimed_again, "another worker takes the abandoned one over")
    counters = (await store.view(deaf)).counters
    assert (counters.interrupts, counters.crashes) == (1, 0), "abandoned is interrupted, not crashed"
