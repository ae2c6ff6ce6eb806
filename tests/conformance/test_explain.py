from __future__ import annotations

from datetime import timedelta

import pytest

from app.domain.drain import DrainShown
from app.domain.explain import explain
from app.domain.explain_fleet import serving
from app.domain.job import JobId
from app.domain.outcome import Cancelled, Completed, Held, Interrupted, Outcome, Retried, Snoozed, Suspended
from app.domain.queue import QueueChange
from app.domain.reason import MOST_AHEAD, REASON_RULES, Explanation, ReasonCode
from app.domain.step import NewWait, Place, StepKind
from tests.conformance.versions import diverged, fleet, handed_back, held_for
from tests.support.drivers import ERROR, NAME, QUEUE, DriverEnv, new_id, new_job

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
FACTS = {rule.code: rule.facts for rule in REASON_RULES}


async def why(env: DriverEnv, job_id: JobId) -> Explanation:
    situation = await env.driver.situation(job_id)
    assert situation is not None
    assert situation.at == env.now()
    explained = explain(situation)
    blocks = any(reason.kind.blocks for reason in explained.reasons)
    assert explained.is_runnable is not blocks
    assert explained.reasons
    for reason in explained.reasons:
        assert tuple(reason.facts) == FACTS[reason.code]
    return explained


def codes(explained: Explanation) -> list[str]:
    return [reason.code.value for reason in explained.reasons]


async def test_a_ready_job_that_a_worker_will_claim_is_next(env: DriverEnv) -> None:
    await env.register(names=(NAME,))
    explained = await why(env, await env.enqueue())
    assert (codes(explained), explained.is_runnable, explained.is_served) == (["next"], True, True)


async def test_jobs_before_it_are_counted_in_claim_order(env: DriverEnv) -> None:
    await env.register(names=(NAME,))
    for _ in range(3):
        await env.enqueue()
    job_id = await env.enqueue()
    await env.enqueue(priority=0)
    await env.enqueue(priority=9)
    await env.enqueue(queue="mail", priority=0)
    (reason,) = (await why(env, job_id)).reasons
    assert (reason.code, reason.facts) == (ReasonCode.AHEAD, {"count": 4, "capped": False, "queue": QUEUE})


async def test_a_count_of_jobs_before_it_ends_somewhere(env: DriverEnv) -> None:
    await env.driver.enqueue_many([new_job() for _ in range(MOST_AHEAD + 1)])
    situation = await env.driver.situation(await env.enqueue())
    assert situation is not None
    assert situation.ahead == MOST_AHEAD


async def test_a_delayed_job_says_until_when_and_when_it_is_due(env: DriverEnv) -> None:
    job_id = await env.enqueue(delay=MINUTE)
    explained = await why(env, job_id)
    assert codes(explained) == ["delayed", "no_workers"]
    assert explained.reasons[0].facts == {"until": env.now() + MINUTE}
    await env.advance(MINUTE)
    due = (await why(env, job_id)).reasons[0]
    assert (due.code, due.facts) == (ReasonCode.DUE, {"since": env.now()})


async def test_what_an_attempt_left_a_job_waiting_for_is_told_apart(env: DriverEnv) -> None:
    outcomes: dict[str, Outcome] = {
        "retry": Retried(error=ERROR, delay=MINUTE),
        "snoozed": Snoozed(delay=MINUTE),
        "interrupted": Interrupted(cause="drain", delay=MINUTE),
    }
    for code, outcome in outcomes.items():
        held = await env.running()
        await env.close_attempt(held.token, outcome)
        reason = (await why(env, held.token.job_id)).reasons[0]
        assert (reason.code.value, reason.facts["until"]) == (code, env.now() + MINUTE)
        if code == "retry":
            assert reason.facts == {
                "until": env.now() + MINUTE,
                "attempt": 1,
                "max_attempts": 25,
                "error": "ValueError: no such order",
            }


async def test_a_paused_queue_says_by_whom_and_blocks(env: DriverEnv) -> None:
    await env.register(names=(NAME,))
    job_id = await env.enqueue()
    await env.driver.pause_queue(QUEUE, by="ops", reason="mail moves")
    explained = await why(env, job_id)
    assert (explained.is_runnable, explained.is_served) == (False, True)
    (reason,) = explained.reasons
    assert reason.facts == {"queue": QUEUE, "by": "ops", "since": env.now(), "until": None, "reason": "mail moves"}
    await env.driver.resume_queue(QUEUE)
    assert codes(await why(env, job_id)) == ["next"]


async def test_a_pause_that_ends_by_itself_says_when_and_then_nothing(env: DriverEnv) -> None:
    await env.register(names=(NAME,))
    job_id = await env.enqueue()
    await env.driver.pause_queue(QUEUE, by="ops", until=env.now() + SECOND)
    (reason,) = (await why(env, job_id)).reasons
    assert reason.facts["until"] == env.now() + SECOND
    await env.advance(SECOND)
    assert codes(await why(env, job_id)) == ["next"]


async def test_a_queue_of_which_as_many_run_as_may_blocks(env: DriverEnv) -> None:
    worker = await env.register(names=(NAME,))
    await env.driver.set_queue(QUEUE, QueueChange(concurrency=1))
    job_id = await env.enqueue()
    assert codes(await why(env, job_id)) == ["next"]
    held = await env.claim_one(worker)
    waiting = await env.enqueue()
    explained = await why(env, waiting)
    assert (explained.is_runnable, codes(explained)) == (False, ["queue_at_limit"])
    assert explained.reasons[0].facts == {"queue": QUEUE, "running": 1, "concurrency": 1}
    assert await env.claim(worker) == ()
    await env.close_attempt(held.token, Completed(result=None))
    assert (await why(env, waiting)).is_runnable
    assert len(await env.claim(worker)) == 1


async def test_a_running_job_says_where(env: DriverEnv) -> None:
    worker = await env.register(host="host-b", names=(NAME,))
    held = await env.running(worker)
    (reason,) = (await why(env, held.token.job_id)).reasons
    assert (reason.code, reason.facts["worker_id"], reason.facts["host"]) == (ReasonCode.RUNNING, str(worker), "host-b")
    assert reason.repair is None
    await env.vanish()
    (reason,) = (await why(env, held.token.job_id)).reasons
    assert "lease has passed" in reason.text


@pytest.mark.parametrize("outcome", [Completed(), Cancelled(reason="not needed")])
async def test_a_job_that_has_ended_says_how(env: DriverEnv, outcome: Completed | Cancelled) -> None:
    held = await env.running()
    await env.close_attempt(held.token, outcome)
    explained = await why(env, held.token.job_id)
    assert codes(explained) == ["done" if isinstance(outcome, Completed) else "cancelled"]
    assert explained.reasons[0].facts["finished_at"] == env.now()


async def test_a_run_that_waits_says_for_what_and_since_when(env: DriverEnv) -> None:
    held = await env.running()
    child = new_job(parent_id=held.token.job_id)
    waits = (
        NewWait(name="nap", kind=StepKind.SLEEP, place=Place("", 0), delay=MINUTE),
        NewWait(name="yes", kind=StepKind.EVENT, place=Place("", 1), event="approved", key="7", delay=2 * MINUTE),
        NewWait(name="sub", kind=StepKind.CALL, place=Place("", 2), child=child),
    )
    await env.close_attempt(held.token, Suspended(waits=waits))
    explained = await why(env, held.token.job_id)
    assert codes(explained) == ["sleeps", "waits_for_event", "waits_for_child"]
    slept, event, called = explained.reasons
    began = env.now()
    assert slept.facts == {"step": "nap", "since": began, "until": began + MINUTE}
    assert event.facts == {
        "step": "yes",
        "since": began,
        "until": began + 2 * MINUTE,
        "event": "approved",
        "key": "7",
    }
    assert called.facts == {"step": "sub", "since": began, "child_id": str(child.id)}
    await env.advance(MINUTE)
    assert codes(await why(env, held.token.job_id))[0] == "woken"


async def test_a_held_job_says_at_which_step(env: DriverEnv) -> None:
    held = await env.running()
    await env.close_attempt(held.token, Held(reason="step 'load' is recorded, 'read' was asked for", error=ERROR))
    reason = (await why(env, held.token.job_id)).reasons[0]
    assert (reason.code, reason.facts) == (
        ReasonCode.HELD,
        {"reason": "step 'load' is recorded, 'read' was asked for"},
    )


async def test_workers_that_cannot_help_are_told_apart(env: DriverEnv) -> None:
    job_id = await env.enqueue()
    assert codes(await why(env, job_id)) == ["no_workers"]
    await env.register(queues=("mail",), names=(NAME,))
    assert codes(await why(env, job_id)) == ["queue_not_served"]
    other = await env.register(names=("other.job",), code_version="old")
    explained = await why(env, job_id)
    assert codes(explained) == ["name_unknown"]
    assert explained.reasons[0].facts == {"name": NAME, "published": None, "versions": ["old"]}
    assert (explained.is_runnable, explained.is_served) == (True, False)
    await env.driver.ask_drain(other, by="ops")
    assert codes(await why(env, job_id)) == ["workers_draining"]
    leaving = await env.register(names=(NAME,))
    await env.driver.show_worker(leaving, wakeup=None, drain=DrainShown(phase="accept"))
    assert codes(await why(env, job_id)) == ["workers_draining"]
    await env.vanish()
    assert codes(await why(env, job_id)) == ["no_workers"]


async def test_a_worker_that_does_not_say_what_it_knows_is_taken_to_know(env: DriverEnv) -> None:
    await env.register()
    assert codes(await why(env, await env.enqueue())) == ["next"]


async def test_a_job_kept_for_one_version_waits_for_it(env: DriverEnv) -> None:
    held, old, new = await handed_back(env)
    job_id = held.token.job_id
    assert codes(await why(env, job_id)) == ["next"]
    began = env.now()
    await env.advance(timedelta(seconds=1))
    other = await env.running(new)  # handed back a second later
    await env.close_attempt(other.token, diverged())
    await env.driver.close_worker(old)
    explained = await why(env, job_id)
    assert codes(explained) == ["version_not_served"]
    assert explained.is_runnable
    assert explained.reasons[0].facts == {
        "version": "old",
        "until": began + timedelta(hours=1),
        "versions": ["new"],
    }
    later = await why(env, other.token.job_id)
    assert later.reasons[0].facts["until"] == began + timedelta(hours=1, seconds=1)
    await env.driver.release_due()
    assert codes(await why(env, job_id))[0] == "held"


async def test_full_workers_and_a_last_crash_are_told(env: DriverEnv) -> None:
    worker = await env.register(concurrency=1, names=(NAME,))
    await env.running(worker)
    job_id = await env.enqueue(max_crashes=1)
    explained = await why(env, job_id)
    assert codes(explained) == ["workers_busy", "runs_alone", "next"]
    assert explained.reasons[0].facts["running"] == explained.reasons[0].facts["concurrency"] == 1
    assert explained.reasons[1].facts == {"crashes": 0, "max_crashes": 1}


async def test_a_held_job_waits_for_workers_too(env: DriverEnv) -> None:
    job_id, worker = await held_for(env, None)
    await env.driver.close_worker(worker)
    assert codes(await why(env, job_id)) == ["held", "no_workers"]


async def test_what_another_tenant_has_cannot_be_asked_about(env: DriverEnv) -> None:
    job_id = await env.enqueue(tenant="acme")
    assert await env.driver.situation(job_id, tenant="other") is None
    assert await env.driver.situation(new_id()) is None
    assert await env.driver.situation(job_id, tenant="acme") is not None


async def test_a_situation_has_only_the_workers_that_fit(env: DriverEnv) -> None:
    old, _ = await fleet(env)
    situation = await env.driver.situation(await env.enqueue())
    assert situation is not None
    assert old in {worker.id for worker in serving(situation)}
