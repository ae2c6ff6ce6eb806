"""A body that has gone on from a failed call takes the same way again, whatever an operator does meanwhile."""

from __future__ import annotations

from uuid import uuid4

from app.domain.errors import ChildFailed
from app.domain.job import JobId
from app.domain.retry import RetryPolicy
from app.domain.state import State
from app.jobs.context import JobContext
from app.jobs.handle import job
from tests.roles.harness import Bench, working
from tests.roles.test_steps_runs import event

FAILING = [True]


@job("child.job", retry=RetryPolicy(max_attempts=1))
async def child() -> str:
    if FAILING[0]:
        raise ValueError("no paper")
    return "printed"


@job("parent.job", retry=RetryPolicy(max_attempts=1))
async def parent(ctx: JobContext) -> list[str]:
    try:
        made = await ctx.step.call("print", child, {})
    except ChildFailed as failed:
        made = await ctx.step.run("by hand", str, f"by hand, {failed.details['child_state']}")
    said = await ctx.step.wait_for_event("go", "parent.go", key="1")
    return [made, said]


async def waiting(bench: Bench) -> JobId:
    """Give a run that has made up for a failed call and waits for an event."""
    FAILING[0] = True
    job_id = await bench.enqueue("parent.job")
    await bench.until("attempt.suspended", job_id, count=2)
    return job_id


async def ends_as_it_began(bench: Bench, job_id: JobId, said: str) -> None:
    await bench.driver.emit(event("parent.go", "1", f'"{said}"'))
    await bench.until("attempt.completed", job_id)
    assert (await bench.view(job_id)).result == f'["by hand, dead","{said}"]'


async def child_of(bench: Bench, job_id: JobId) -> JobId:
    run = await bench.driver.run(job_id)
    assert run is not None
    (only,) = run.children
    return only


async def test_after_a_cancel_and_a_retry() -> None:
    async with working(parent, child) as bench:
        job_id = await waiting(bench)
        await bench.driver.cancel(job_id, reason="stop")
        FAILING[0] = False
        await bench.driver.retry(job_id)
        await bench.until("attempt.suspended", job_id, count=3)
        await ends_as_it_began(bench, job_id, "one")
        await child_of(bench, job_id)


async def test_in_a_fork() -> None:
    async with working(parent, child) as bench:
        job_id = await waiting(bench)
        FAILING[0] = False
        fork = JobId(uuid4())
        await bench.driver.fork(job_id, new_id=fork)
        await bench.until("attempt.suspended", fork)
        await ends_as_it_began(bench, fork, "two")
        assert (await bench.driver.history(fork, (await bench.view(fork)).run_id)).waits == ()


async def test_while_the_child_lives_again() -> None:
    async with working(parent, child) as bench:
        job_id = await waiting(bench)
        again = await child_of(bench, job_id)
        FAILING[0] = False
        await bench.driver.retry(again)
        await bench.until("attempt.completed", again)
        assert (await bench.view(again)).state is State.DONE
        await ends_as_it_began(bench, job_id, "three")
