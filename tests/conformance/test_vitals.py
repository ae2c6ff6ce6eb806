from __future__ import annotations

from datetime import timedelta

from app.domain.vitals import ReadyGroup, WorkVitals
from tests.conformance.versions import handed_back
from tests.support.drivers import LEASE, NAME, QUEUE, DriverEnv


async def work(env: DriverEnv) -> WorkVitals:
    found = (await env.driver.vitals()).work
    assert found is not None
    return found


async def test_a_store_that_is_empty_has_nothing_to_tell(env: DriverEnv) -> None:
    vitals = await env.driver.vitals()
    assert vitals.is_durable is env.driver.capabilities.is_durable
    assert (vitals.server is not None) is vitals.is_durable
    assert vitals.work == WorkVitals()


async def test_ready_jobs_are_counted_by_queue_type_and_version(env: DriverEnv) -> None:
    held, _, _ = await handed_back(env)
    await env.enqueue("other.job", queue="mail")
    for _ in range(2):
        await env.enqueue()
    await env.enqueue(delay=timedelta(minutes=1))
    assert held.name == NAME
    assert set((await work(env)).ready) == {
        ReadyGroup(queue=QUEUE, name=NAME, version=None, count=2),
        ReadyGroup(queue=QUEUE, name=NAME, version="old", count=1),
        ReadyGroup(queue="mail", name="other.job", version=None, count=1),
    }


async def test_workers_that_vanished_are_named_until_they_are_reaped(env: DriverEnv) -> None:
    lost = await env.register(host="host-b")
    await env.running(lost)
    left = await env.register()
    await env.driver.close_worker(left)
    until = env.now() + LEASE
    assert await work(env) == WorkVitals()
    await env.vanish()
    live = await env.register()
    await env.running(live)
    found = await work(env)
    assert [(lease.worker_id, lease.host, lease.lease_until) for lease in found.lost] == [(lost, "host-b", until)]
    assert found.stranded == 1
    await env.driver.reap()
    assert ((await work(env)).lost, (await work(env)).stranded) == ((), 0)
