"""Traces of runs, written out of every driver: which jobs, and what of their runs."""

from __future__ import annotations

from app.domain.outcome import Completed
from app.domain.state import State
from app.drivers.reading import ListQuery
from app.replay.export import PAGE, Exporter
from app.replay.line import line_of, trace_of
from app.replay.trace import Trace
from tests.conformance.runs import (
    CHILD,
    a_call,
    a_child,
    a_sleep,
    an_event,
    called,
    die,
    emit,
    enlist,
    history,
    record,
    settle,
    suspend,
    suspended,
)
from tests.support.drivers import DriverEnv, new_id, new_job


async def exported(env: DriverEnv, **query: object) -> list[Trace]:
    """Give all traces that a query finds, read back from their text."""
    exporter = Exporter(env.driver, ListQuery(**query))  # type: ignore[arg-type] # a test names fields
    found: list[Trace] = []
    while (page := await exporter.page()) is not None:
        found += [trace_of(line_of(trace), number=1) for trace in page]
    return found


async def test_a_trace_has_the_job_and_all_that_its_run_recorded(env: DriverEnv) -> None:
    held = await env.running(await enlist(env))
    await record(env, held.token, "load", "store")
    await suspend(env, held, a_sleep("nap", 2), an_event("approval", 3))
    await emit(env)
    (trace,) = await exported(env)
    assert trace.history == await history(env, held.token.job_id)
    assert [step.name for step in trace.history.steps] == ["load", "store", "approval"]
    assert [wait.name for wait in trace.history.waits] == ["nap"]
    view = await env.describe(held.token.job_id)
    assert (trace.job.id, trace.job.payload, trace.job.state) == (view.id, view.payload, State.READY)
    assert trace.job.counters == view.counters
    claim = trace.claimed(view.created_at)
    again = await env.claim_one(held.token.worker_id)
    assert (claim.counters, claim.run_id, claim.payload) == (again.counters, again.run_id, again.payload)


async def test_a_call_whose_child_failed_says_how(env: DriverEnv) -> None:
    parent, child = await called(env)
    await die(env, child)
    (trace,) = await exported(env)
    (wait,) = trace.history.waits
    assert trace.job.id == parent.token.job_id
    assert (wait.child_state, wait.child_error_type) == (State.DEAD, "ValueError")
    assert trace.history == await history(env, parent.token.job_id)


async def test_jobs_that_have_ended_are_left_out_unless_they_are_asked_for(env: DriverEnv) -> None:
    worker = await enlist(env)
    done = await env.running(worker)
    await settle(env, done, Completed(result='"x"'))
    waiting = await suspended(env, a_sleep(), worker=worker)
    ready = await env.driver.enqueue(new_job())
    assert [trace.job.id for trace in await exported(env)] == [ready.id, waiting.token.job_id]
    (trace,) = await exported(env, states=frozenset({State.DONE}))
    assert (trace.job.id, trace.job.result) == (done.token.job_id, '"x"')


async def test_traces_are_found_by_name_state_and_page(env: DriverEnv) -> None:
    await env.driver.enqueue_many([new_job() for _ in range(PAGE + 1)])
    await env.driver.enqueue(new_job(CHILD))
    assert len(await exported(env)) == PAGE + 2
    assert [trace.job.name for trace in await exported(env, name=CHILD)] == [CHILD]
    assert await exported(env, states=frozenset({State.SUSPENDED})) == []


async def test_a_fork_that_was_never_claimed_has_a_history(env: DriverEnv) -> None:
    held = await env.running(await enlist(env))
    await record(env, held.token, "load")
    await settle(env, held, Completed())
    forked = await env.driver.fork(held.token.job_id, new_id=new_id())
    (trace,) = await exported(env)
    assert (trace.job.id, [step.name for step in trace.history.steps]) == (forked.id, ["load"])


async def test_a_child_that_waits_in_line_has_none(env: DriverEnv) -> None:
    parent = await env.running(await enlist(env))
    await suspend(env, parent, a_call(a_child(parent)))
    child, _ = await exported(env)
    assert (child.job.name, child.history.steps, child.history.waits) == (CHILD, (), ())
