from __future__ import annotations

from datetime import timedelta

from app.domain.job import JobId
from app.domain.outcome import Completed, DeadLettered, ErrorInfo, Held, Retried
from app.domain.state import DeadReason, State
from app.drivers.reading import ListQuery
from tests.conformance.endings import cancelled_before_start, crashed_too_often, dead_lettered, expired
from tests.support.drivers import ERROR, DriverEnv, new_job

MINUTE = timedelta(minutes=1)


async def _pages(env: DriverEnv, query: ListQuery) -> list[list[JobId]]:
    """Every page until there is none."""
    pages = []
    before = query.before
    while True:
        page = await env.driver.list(
            ListQuery(
                states=query.states,
                name=query.name,
                queue=query.queue,
                tenant=query.tenant,
                before=before,
                limit=query.limit,
            )
        )
        pages.append([item.id for item in page.items])
        if page.next_after is None:
            return pages
        before = page.next_after


async def _ids(env: DriverEnv, query: ListQuery) -> list[JobId]:
    return [job_id for page in await _pages(env, query) for job_id in page]


async def test_an_empty_store_is_one_empty_page(env: DriverEnv) -> None:
    page = await env.driver.list(ListQuery())
    assert (page.items, page.next_after) == ((), None)


async def test_newest_ids_come_first_page_by_page(env: DriverEnv) -> None:
    jobs = [new_job() for _ in range(7)]
    await env.driver.enqueue_many(jobs)
    newest = sorted((job.id for job in jobs), reverse=True)
    assert await _pages(env, ListQuery(limit=3)) == [newest[:3], newest[3:6], newest[6:]]
    assert await _pages(env, ListQuery(limit=7)) == [newest]
    assert await _pages(env, ListQuery(limit=200)) == [newest]


async def test_pages_are_stable_under_new_jobs(env: DriverEnv) -> None:
    jobs = [new_job() for _ in range(4)]
    await env.driver.enqueue_many(jobs)
    newest = sorted((job.id for job in jobs), reverse=True)
    first = await env.driver.list(ListQuery(limit=2))
    await env.enqueue()
    second = await env.driver.list(ListQuery(limit=2, before=first.next_after))
    assert [item.id for item in (*first.items, *second.items)] == newest


async def test_items_are_views_without_payload_and_result(env: DriverEnv) -> None:
    worker = await env.register()
    done = (await env.running(worker, payload='{"a": 1}', key="k", tags=("x",), meta="{}")).token
    await env.close_attempt(done, Completed(result="1"))
    failed = (await env.running(worker, priority=3, tenant="acme")).token
    await env.close_attempt(failed, Retried(error=ERROR, delay=MINUTE))
    running = (await env.running(worker)).token
    await env.enqueue(timeout=MINUTE)
    items = {item.id: item for item in (await env.driver.list(ListQuery())).items}
    assert len(items) == 4
    for job_id, item in items.items():
        full = await env.describe(job_id)
        assert (item.payload, item.result) == (None, None)
        for field in item.__slots__:
            if field not in {"payload", "result"}:
                assert getattr(item, field) == getattr(full, field), field
    assert items[running.job_id].claim is not None


async def test_every_state_can_be_asked_for(env: DriverEnv) -> None:
    worker = await env.register(lease_ms=86_400_000)
    expected: dict[State, JobId] = {}
    expected[State.DEAD] = await dead_lettered(env, {})
    expected[State.CANCELLED] = await cancelled_before_start(env, {})
    done = (await env.running(worker)).token
    await env.close_attempt(done, Completed())
    held = (await env.running(worker)).token
    await env.close_attempt(held, Held(reason="does not fit"))
    running = (await env.running(worker)).token
    expected |= {State.DONE: done.job_id, State.HELD: held.job_id, State.RUNNING: running.job_id}
    expected[State.DELAYED] = await env.enqueue(delay=MINUTE)
    expected[State.READY] = await env.enqueue()
    for state, job_id in expected.items():
        assert await _ids(env, ListQuery(states=frozenset({state}))) == [job_id], state
    assert await _ids(env, ListQuery(states=frozenset({State.SUSPENDED}))) == []
    several = frozenset({State.DONE, State.READY, State.DEAD})
    assert set(await _ids(env, ListQuery(states=several))) == {expected[state] for state in several}
    assert set(await _ids(env, ListQuery(states=frozenset(State)))) == set(expected.values())


async def test_filters_narrow_together(env: DriverEnv) -> None:
    jobs = [
        new_job(name, queue=queue, tenant=tenant)
        for name in ("a.job", "b.job")
        for queue in ("q1", "q2")
        for tenant in ("t1", "t2")
    ]
    await env.driver.enqueue_many(jobs)
    for name in (None, "a.job", "b.job", "absent"):
        for queue in (None, "q1", "absent"):
            for tenant in (None, "t2", "absent"):
                fitting = {
                    job.id
                    for job in jobs
                    if name in {None, job.name} and queue in {None, job.queue} and tenant in {None, job.tenant}
                }
                for states in (frozenset[State](), frozenset({State.READY})):
                    query = ListQuery(name=name, queue=queue, tenant=tenant, states=states, limit=2)
                    assert await _ids(env, query) == sorted(fitting, reverse=True)


async def test_a_rare_match_is_found_behind_many_others(env: DriverEnv) -> None:
    rare = await env.enqueue("rare.job")
    await env.driver.enqueue_many([new_job() for _ in range(300)])
    assert await _ids(env, ListQuery(name="rare.job", limit=5)) == [rare]


# --- dead letters


async def test_dead_letters_are_grouped_most_first(env: DriverEnv) -> None:
    other = ErrorInfo(type="KeyError", message="x")
    worker = await env.register(lease_ms=86_400_000)
    started_at = env.now()
    for index in range(3):
        token = (await env.running(worker)).token
        error = ErrorInfo(type=ERROR.type, message=f"message {index}", code=ERROR.code)
        await env.close_attempt(token, DeadLettered(error=error, reason=DeadReason.ATTEMPTS_EXHAUSTED))
        await env.advance(MINUTE)
    for _ in range(2):
        token = (await env.running(worker)).token
        await env.close_attempt(token, DeadLettered(error=other, reason=DeadReason.TERMINAL))
    await expired(env, {"name": "other.job"})
    groups = await env.driver.dead_letters()
    assert [(group.name, group.reason, group.error_type, group.error_code, group.count) for group in groups] == [
        ("demo.job", "attempts_exhausted", "ValueError", "ORDER_UNKNOWN", 3),
        ("demo.job", "terminal", "KeyError", None, 2),
        ("other.job", "expired", None, None, 1),
    ]
    assert (groups[0].first_at, groups[0].last_at) == (started_at, started_at + 2 * MINUTE)


async def test_dead_letters_of_a_crash_carry_its_code(env: DriverEnv) -> None:
    await crashed_too_often(env, {})
    (group,) = await env.driver.dead_letters()
    assert (group.reason, group.error_code) == ("crashed_too_often", "CRASHED_TOO_OFTEN")


async def test_dead_letters_know_their_tenant_and_leave_out_everything_else(env: DriverEnv) -> None:
    await dead_lettered(env, {"tenant": "acme"})
    retried = await dead_lettered(env, {"tenant": "acme"})
    await env.driver.retry(retried)
    await cancelled_before_start(env, {"tenant": "acme"})
    assert [group.count for group in await env.driver.dead_letters(tenant="acme")] == [1]
    assert await env.driver.dead_letters(tenant="other") == ()
    assert [group.count for group in await env.driver.dead_letters()] == [1]
