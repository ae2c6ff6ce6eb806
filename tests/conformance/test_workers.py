from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from app.domain.drain import DrainAsk, DrainShown
from app.domain.job import WorkerId
from app.domain.snapshot import JobTypeDoc
from tests.support.drivers import LEASE, DriverEnv, new_job

MINUTE = timedelta(minutes=1)


async def test_a_worker_is_shown_as_it_registered(env: DriverEnv) -> None:
    worker = await env.register(
        host="host-z", pid=99, code_version="4.2", queues=("a", "b"), concurrency=7, lease_ms=12_345
    )
    (view,) = await env.driver.workers()
    assert (view.id, view.host, view.pid, view.code_version) == (worker, "host-z", 99, "4.2")
    assert (view.queues, view.concurrency) == (("a", "b"), 7)
    assert (view.started_at, view.lease_until) == (env.now(), env.now() + timedelta(milliseconds=12_345))
    assert (view.heartbeat_age_ms, view.running) == (0, 0)
    assert (view.lost_at, view.closed_at, view.drain_phase, view.wakeup) == (None, None, None, None)


async def test_a_registration_repeated_under_its_boot_id_is_the_same_worker(env: DriverEnv) -> None:
    boot = uuid4()
    worker = await env.register(boot_id=boot)
    await env.advance(LEASE / 2)
    assert await env.register(boot_id=boot) == worker
    (view,) = await env.driver.workers()
    assert (view.started_at, view.lease_until) == (env.now() - LEASE / 2, env.now() + LEASE), "its lease starts anew"
    await env.advance(LEASE)
    other = await env.register(boot_id=boot)
    assert other != worker, "a lease that has passed never comes back"
    await env.driver.close_worker(other)
    assert await env.register(boot_id=boot) not in {worker, other}


async def test_worker_ids_never_repeat(env: DriverEnv) -> None:
    ids = []
    for _ in range(3):
        worker = await env.register()
        await env.driver.close_worker(worker)
        await env.forget_worker(worker)
        ids.append(worker)
    assert len(set(ids)) == 3
    assert ids == sorted(ids)


async def test_workers_are_newest_first_with_what_they_run(env: DriverEnv) -> None:
    first, second = await env.register(), await env.register()
    await env.driver.enqueue_many([new_job() for _ in range(3)])
    await env.claim(first, room=2)
    await env.claim(second, room=1)
    assert [(view.id, view.running) for view in await env.driver.workers()] == [(second, 1), (first, 2)]


async def test_the_age_of_the_heartbeat_is_shown(env: DriverEnv) -> None:
    worker = await env.register()
    await env.advance(timedelta(seconds=12))
    (view,) = await env.driver.workers()
    assert view.heartbeat_age_ms == 12_000
    await env.renew(worker)
    (view,) = await env.driver.workers()
    assert (view.heartbeat_age_ms, view.lease_until) == (0, env.now() + LEASE)


async def test_how_a_worker_learns_and_whether_it_drains_is_shown(env: DriverEnv) -> None:
    worker, other = await env.register(), await env.register()
    await env.driver.show_worker(worker, wakeup="listen", drain=None)
    drain = DrainShown(phase="accept", reason="SIGTERM", left=timedelta(seconds=25))
    await env.driver.show_worker(worker, wakeup="polling", drain=drain)
    views = {view.id: view for view in await env.driver.workers()}
    shown = views[worker]
    assert (shown.drain_phase, shown.drain_reason, shown.wakeup) == ("accept", "SIGTERM", "polling")
    assert shown.drain_deadline_at == env.now() + timedelta(seconds=25)
    assert (views[other].drain_phase, views[other].wakeup, views[other].drain_deadline_at) == (None, None, None)
    await env.driver.show_worker(WorkerId(other + 1000), wakeup=None, drain=drain)
    await env.driver.show_worker(worker, wakeup="polling", drain=DrainShown(phase="inflight"))
    assert {view.id: view for view in await env.driver.workers()}[worker].drain_deadline_at is None


async def test_a_worker_that_is_asked_to_drain_learns_so_at_its_next_renewal(env: DriverEnv) -> None:
    worker, other = await env.register(), await env.register()
    assert (await env.renew(worker)).drain_asked_by is None
    assert await env.driver.ask_drain(worker, by="ann") is DrainAsk.ASKED
    asked_at = env.now()
    await env.advance(timedelta(seconds=1))
    assert await env.driver.ask_drain(worker, by="ben") is DrainAsk.ASKED, "who asked first stands"
    assert (await env.renew(worker)).drain_asked_by == "ann"
    assert (await env.renew(other)).drain_asked_by is None
    views = {view.id: view for view in await env.driver.workers()}
    assert (views[worker].drain_asked_by, views[worker].drain_asked_at) == ("ann", asked_at)
    assert (views[other].drain_asked_by, views[other].drain_asked_at) == (None, None)


async def test_a_worker_says_when_a_signal_told_it_to_leave(env: DriverEnv) -> None:
    signalled, asked = await env.register(), await env.register()
    began = env.now() - timedelta(seconds=2)
    told = DrainShown(phase="accept", reason="SIGTERM", left=timedelta(seconds=23), told=timedelta(seconds=2))
    await env.driver.show_worker(signalled, wakeup=None, drain=told)
    await env.driver.ask_drain(asked, by="ann")
    asked_at = env.now()
    await env.advance(timedelta(seconds=5))
    for worker in (signalled, asked):
        later = DrainShown(phase="inflight", left=timedelta(seconds=18), told=timedelta(seconds=6))
        await env.driver.show_worker(worker, wakeup=None, drain=later)
    views = {view.id: view for view in await env.driver.workers()}
    assert (views[signalled].drain_asked_by, views[signalled].drain_asked_at) == (None, began), "what it said first"
    assert (views[asked].drain_asked_by, views[asked].drain_asked_at) == ("ann", asked_at), "before it was told"
    assert (await env.renew(signalled)).drain_asked_by is None
    await env.driver.ask_drain(signalled, by="ben")
    views = {view.id: view for view in await env.driver.workers()}
    assert (views[signalled].drain_asked_by, views[signalled].drain_asked_at) == ("ben", env.now())


async def test_a_worker_that_lost_its_lease_still_learns_that_it_was_asked_to_drain(env: DriverEnv) -> None:
    worker, other = await env.register(), await env.register()
    assert await env.driver.ask_drain(worker, by="ann") is DrainAsk.ASKED
    await env.vanish()
    renewal = await env.renew(worker)
    assert (renewal.is_held, renewal.drain_asked_by) == (False, "ann")
    renewal = await env.renew(other)
    assert (renewal.is_held, renewal.drain_asked_by) == (False, None)


async def test_a_worker_that_has_left_cannot_be_asked_to_drain(env: DriverEnv) -> None:
    closed, silent, told, abandoning = [await env.register() for _ in range(4)]
    await env.driver.close_worker(closed)
    await env.driver.show_worker(abandoning, wakeup=None, drain=DrainShown(phase="close"))
    await env.driver.show_worker(told, wakeup=None, drain=DrainShown(phase="inflight"))
    gone = {closed: DrainAsk.LEFT, silent: DrainAsk.LOST, told: DrainAsk.LOST, abandoning: DrainAsk.LEFT}
    assert await env.driver.ask_drain(closed, by="ann") is DrainAsk.LEFT
    await env.vanish()
    assert {one: await env.driver.ask_drain(one, by="ann") for one in gone} == gone, "the leases passed, none is reaped"
    await env.driver.reap()
    assert {one: await env.driver.ask_drain(one, by="ann") for one in gone} == gone
    await env.driver.surrender(silent)
    assert await env.driver.ask_drain(silent, by="ann") is DrainAsk.LOST, "its process took a new id"
    assert await env.driver.ask_drain(WorkerId(abandoning + 1000), by="ann") is DrainAsk.UNKNOWN
    views = await env.driver.workers()
    assert {view.drain_asked_at for view in views} == {None}
    assert {view.id: (view.has_left, view.is_lost) for view in views} == {
        one: (found is DrainAsk.LEFT, found is DrainAsk.LOST) for one, found in gone.items()
    }


async def test_workers_that_left_are_shown_for_an_hour(env: DriverEnv) -> None:
    closed, lost, alive = await env.register(), await env.register(), await env.register(lease_ms=86_400_000)
    await env.driver.close_worker(closed)
    closed_at = env.now()
    await env.vanish()
    await env.driver.reap()
    lost_at = env.now()
    views = {view.id: view for view in await env.driver.workers()}
    assert (views[closed].closed_at, views[closed].lost_at) == (closed_at, None)
    assert (views[lost].closed_at, views[lost].lost_at) == (None, lost_at)
    await env.advance(closed_at + timedelta(hours=1) - env.now())
    assert {view.id for view in await env.driver.workers()} == {lost, alive}
    await env.advance(MINUTE)
    assert {view.id for view in await env.driver.workers()} == {alive}


async def test_closing_twice_keeps_the_first_time(env: DriverEnv) -> None:
    worker = await env.register()
    await env.driver.close_worker(worker)
    closed_at = env.now()
    await env.advance(timedelta(seconds=5))
    await env.driver.close_worker(worker)
    await env.driver.close_worker(WorkerId(worker + 1000))
    (view,) = await env.driver.workers()
    assert view.closed_at == closed_at


# --- job types


async def test_the_newest_publication_of_a_name_stands(env: DriverEnv) -> None:
    await env.driver.publish_job_types([JobTypeDoc(name="a.job", code_version="1", document='{"v":1}')])
    await env.advance(MINUTE)
    await env.driver.publish_job_types(
        [
            JobTypeDoc(name="b.job", code_version="2", document="{}"),
            JobTypeDoc(name="a.job", code_version="2", document='{"v": 2}'),
        ]
    )
    assert await env.driver.job_types() == (
        JobTypeDoc(name="a.job", code_version="2", document='{"v": 2}', published_at=env.now()),
        JobTypeDoc(name="b.job", code_version="2", document="{}", published_at=env.now()),
    )


async def test_job_types_are_in_code_point_order(env: DriverEnv) -> None:
    names = ["b", "a.c", "a-b", "ab", "a_b", "a:b", "a"]
    await env.driver.publish_job_types([JobTypeDoc(name=name, code_version="1", document="{}") for name in names])
    assert [doc.name for doc in await env.driver.job_types()] == sorted(names)
    await env.driver.publish_job_types(())
    assert len(await env.driver.job_types()) == len(names)
