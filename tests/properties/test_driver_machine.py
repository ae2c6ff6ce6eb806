"""One state machine over both drivers: the same commands, the same answers, the same view of everything after each."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from app.domain.drain import DrainShown
from app.domain.outcome import (
    Outcome,
)
from app.domain.snapshot import JobTypeDoc
from app.domain.state import LIVE, TERMINAL, State
from app.drivers.protocol import PurgeQuery
from tests.properties.action_rules import ActionRules
from tests.properties.driver_model import (
    HOUR,
    MINUTE,
    MOST_JOBS,
    SECOND,
    delays,
    keys,
    names,
    one,
    outcomes,
    picks,
    queues,
    shapes,
)
from tests.properties.explain_rules import ExplainRules
from tests.support.drivers import new_worker, postgres_env, with_token
from tests.support.twins import START


class DriverMachine(ExplainRules, ActionRules):
    """Commands in any order."""

    # --- producers

    @precondition(lambda self: len(self.jobs) < MOST_JOBS)
    @rule(shape=shapes)
    def enqueue(self, shape: dict[str, Any]) -> None:
        self._enqueue(self._job(shape))

    @precondition(lambda self: len(self.jobs) < MOST_JOBS)
    @rule(shape=shapes, key=keys)
    def enqueue_keyed(self, shape: dict[str, Any], key: dict[str, Any]) -> None:
        self._enqueue(self._job(shape, **key))

    @precondition(lambda self: len(self.jobs) < MOST_JOBS)
    @rule(shape=shapes, key=keys, window=st.sampled_from([MINUTE, HOUR]))
    def enqueue_with_a_window(self, shape: dict[str, Any], key: dict[str, Any], window: timedelta) -> None:
        self._enqueue(self._job(shape, **key, dedupe_for=window))

    @precondition(lambda self: len(self.jobs) < MOST_JOBS)
    @rule(shape=shapes, delay=delays, is_absolute=st.booleans())
    def enqueue_delayed(self, shape: dict[str, Any], delay: timedelta, is_absolute: bool) -> None:
        when = {"run_at": self.twins.now() + delay} if is_absolute else {"delay": delay}
        self._enqueue(self._job(shape, **when))

    @precondition(lambda self: len(self.jobs) < MOST_JOBS)
    @rule(
        shape=shapes,
        limits=st.fixed_dictionaries({}, optional={"max_queue_time": delays, "deadline": delays, "delay": delays}),
    )
    def enqueue_with_limits(self, shape: dict[str, Any], limits: dict[str, Any]) -> None:
        self._enqueue(self._job(shape, **limits))

    @precondition(lambda self: len(self.jobs) < MOST_JOBS)
    @rule(shape=shapes, source=st.sampled_from([UUID(int=1), UUID(int=2)]), key=st.none() | keys)
    def enqueue_from_a_source(self, shape: dict[str, Any], source: UUID, key: dict[str, Any] | None) -> None:
        self._enqueue(self._job(shape, source_id=source, **(key or {})))

    @precondition(lambda self: len(self.jobs) < MOST_JOBS - 3)
    @rule(shapes=st.lists(st.tuples(shapes, st.none() | keys), min_size=1, max_size=4))
    def enqueue_batch(self, shapes: list[tuple[dict[str, Any], dict[str, Any] | None]]) -> None:
        batch = [self._job(shape, **(key or {})) for shape, key in shapes]
        self.twins.ask(lambda side: side.driver.enqueue_many(batch))

    @precondition(lambda self: self.jobs)
    @rule(pick=picks)
    def enqueue_again(self, pick: int) -> None:
        self._enqueue(one(self.jobs, pick))

    # --- workers

    @precondition(lambda self: len(self.twins.workers) < 8)
    @rule(lease=st.sampled_from([30 * SECOND, 10 * MINUTE]), code_version=st.sampled_from(["1", "2"]))
    def register(self, lease: timedelta, code_version: str) -> None:
        about = new_worker(lease_ms=lease // timedelta(milliseconds=1), code_version=code_version)
        self.twins.register(lambda side: side.driver.register_worker(about))

    @precondition(lambda self: self.twins.workers)
    @rule(
        pick=picks,
        shares=st.dictionaries(queues, st.integers(0, 4), min_size=0, max_size=2),
        known=st.sets(names).map(frozenset),
        room=st.integers(0, 5),
    )
    def claim(self, pick: int, shares: dict[str, int], known: frozenset[str], room: int) -> None:
        self._claim(pick, shares, known, room)

    @precondition(lambda self: self.twins.workers)
    @rule(pick=picks, room=st.integers(1, 3), alone_ok=st.booleans())
    def claim_anything(self, pick: int, room: int, alone_ok: bool) -> None:
        shares = {"default": room, "mail": room}
        self._claim(pick, shares, frozenset({"a.job", "b.job"}), room, alone_ok=alone_ok)

    @precondition(lambda self: self.twins.workers)
    @rule(pick=picks)
    def renew(self, pick: int) -> None:
        worker = one(self.twins.workers, pick)
        held = [token for token in self.tokens if token.memory.worker_id == worker.memory]
        self.twins.ask(lambda side: side.env.renew(side.own(worker), [side.own(token) for token in held]))

    @precondition(lambda self: self._running())
    @rule(pick=picks, outcome=outcomes)
    def settle(self, pick: int, outcome: Outcome) -> None:
        self._settle([(one(self._running(), pick), outcome)])

    @precondition(lambda self: self.tokens)
    @rule(pick=picks, outcome=outcomes)
    def settle_with_any_token_there_ever_was(self, pick: int, outcome: Outcome) -> None:
        self._settle([(one(self.tokens, pick), outcome)])

    @precondition(lambda self: len(self._running()) > 1)
    @rule(given=st.lists(outcomes, min_size=2, max_size=4))
    def settle_batch(self, given: list[Outcome]) -> None:
        self._settle(list(zip(self._running(), given, strict=False)))

    @precondition(lambda self: self._running() and len(self.twins.workers) > 1)
    @rule(pick=picks, other=picks, outcome=outcomes)
    def settle_for_another_worker(self, pick: int, other: int, outcome: Outcome) -> None:
        token, worker = one(self._running(), pick), one(self.twins.workers, other)
        self.twins.ask(lambda side: side.env.settle(with_token(side.own(token), worker_id=side.own(worker)), outcome))

    @precondition(lambda self: self.tokens)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        token = one(self._running() or self.tokens, pick)
        self.twins.ask(lambda side: side.driver.release((side.own(token),), cause="drain"))

    @precondition(lambda self: self.twins.workers)
    @rule(pick=picks, kept=st.integers(0, 2))
    def reconcile(self, pick: int, kept: int) -> None:
        worker = one(self.twins.workers, pick)
        held = [token for token in self._running() if token.memory.worker_id == worker.memory][:kept]
        self.twins.ask(lambda side: side.driver.reconcile(side.own(worker), [side.own(token) for token in held]))

    @precondition(lambda self: self.tokens)
    @rule(pick=picks)
    def isolate(self, pick: int) -> None:
        token = one(self._running() or self.tokens, pick)
        self.twins.ask(lambda side: side.driver.isolate(side.own(token)))

    @precondition(lambda self: self.twins.workers)
    @rule(pick=picks, most=st.integers(0, 2), lease=st.sampled_from([3 * SECOND, MINUTE]))
    def abandon(self, pick: int, most: int, lease: timedelta) -> None:
        worker = one(self.twins.workers, pick)
        given = [token for token in self.tokens if token.memory.worker_id == worker.memory][-most:] if most else []
        self.twins.ask(lambda side: side.env.abandon(side.own(worker), [side.own(each) for each in given], lease))

    @precondition(lambda self: self.twins.workers)
    @rule(pick=picks)
    def surrender(self, pick: int) -> None:
        worker = one(self.twins.workers, pick)
        self.twins.ask(lambda side: side.driver.surrender(side.own(worker)))

    @precondition(lambda self: self.twins.workers)
    @rule(pick=picks)
    def close_worker(self, pick: int) -> None:
        worker = one(self.twins.workers, pick)
        self.twins.ask(lambda side: side.driver.close_worker(side.own(worker)))

    @precondition(lambda self: self.twins.workers)
    @rule(pick=picks, phase=st.sampled_from([None, "accept"]))
    def show_worker(self, pick: int, phase: str | None) -> None:
        worker = one(self.twins.workers, pick)
        drain = None if phase is None else DrainShown(phase=phase, reason="SIGTERM", left=10 * SECOND)
        self.twins.ask(lambda side: side.driver.show_worker(side.own(worker), wakeup="polling", drain=drain))

    @precondition(lambda self: self.twins.workers)
    @rule(pick=picks, by=st.sampled_from(["ann", "ben"]))
    def ask_drain(self, pick: int, by: str) -> None:
        worker = one(self.twins.workers, pick)
        self.twins.ask(lambda side: side.driver.ask_drain(side.own(worker), by=by))

    # --- maintenance

    @rule(by=st.sampled_from([SECOND, 29 * SECOND, 30 * SECOND, MINUTE, 5 * MINUTE, HOUR]))
    def advance(self, by: timedelta) -> None:
        self.twins.advance(by)

    @rule()
    def let_every_lease_pass_and_reap(self) -> None:
        self.twins.advance(10 * MINUTE)
        self.twins.ask(lambda side: side.driver.reap())

    @rule(batch=st.sampled_from([1, 1000]))
    def reap(self, batch: int) -> None:
        self.twins.ask(lambda side: side.driver.reap(batch))

    @rule(batch=st.sampled_from([1000, 1000, 1]))
    def promote(self, batch: int) -> None:
        self.twins.ask(lambda side: side.driver.promote(batch))

    @rule()
    def expire(self) -> None:
        self.twins.ask(lambda side: side.driver.expire())

    @rule(state=st.sampled_from(sorted(TERMINAL)), older_than=st.sampled_from([timedelta(), MINUTE, HOUR]))
    def purge(self, state: State, older_than: timedelta) -> None:
        self.twins.ask(lambda side: side.driver.purge(PurgeQuery(state=state, older_than=older_than)))

    # --- operators

    @precondition(lambda self: self.jobs)
    @rule(pick=picks, tenant=st.sampled_from([None, None, "acme"]))
    def cancel(self, pick: int, tenant: str | None) -> None:
        job_id = one(self.jobs, pick).id
        self.twins.ask(lambda side: side.driver.cancel(job_id, reason="stop", tenant=tenant))

    @precondition(lambda self: self._in(LIVE))
    @rule(pick=picks)
    def cancel_a_live_job(self, pick: int) -> None:
        job_id = one(self._in(LIVE), pick)
        self.twins.ask(lambda side: side.driver.cancel(job_id, reason="stop"))

    @precondition(lambda self: self.jobs)
    @rule(pick=picks, tenant=st.sampled_from([None, None, "acme"]))
    def retry(self, pick: int, tenant: str | None) -> None:
        job_id = one(self._in({State.DEAD, State.CANCELLED}) or [job.id for job in self.jobs], pick)
        self.twins.ask(lambda side: side.driver.retry(job_id, tenant=tenant))

    @rule(name=names, code_version=st.sampled_from(["1", "2"]))
    def publish(self, name: str, code_version: str) -> None:
        doc = JobTypeDoc(name=name, code_version=code_version, document="{}")
        self.twins.ask(lambda side: side.driver.publish_job_types([doc]))
        self.twins.ask(lambda side: side.driver.job_types())


@pytest.fixture
def machine(database_url: str) -> Iterator[type[DriverMachine]]:
    """Machines over one database that each empties before it starts; the loop is theirs alone."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        env = runner.run(stack.enter_async_context(postgres_env(database_url, START)))

        class Bound(DriverMachine):
            def __init__(self) -> None:
                super().__init__(runner, env)

        yield Bound
        runner.run(stack.aclose())


def _settings(max_examples: int, steps: int, *, phases: Collection[Phase]) -> settings:
    return settings(
        max_examples=max_examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=phases,
    )


# Shrinking takes minutes: the short run shows the first example there is, which names every command and difference.
SHORT = _settings(60, 40, phases=[Phase.explicit, Phase.reuse, Phase.generate])
LONG = _settings(2000, 50, phases=list(Phase))


@pytest.mark.postgres
@pytest.mark.timeout(300)
def test_both_drivers_answer_alike(machine: type[DriverMachine]) -> None:
    run_state_machine_as_test(machine, settings=SHORT)


@pytest.mark.soak
@pytest.mark.postgres
@pytest.mark.timeout(7200)
def test_both_drivers_answer_alike_at_length(machine: type[DriverMachine]) -> None:
    run_state_machine_as_test(machine, settings=LONG)
