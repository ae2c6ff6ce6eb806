"""What the state machine over both drivers draws from, keeps, and demands after every command.

Entities are picked by number among those that are there; the rules themselves are in `test_driver_machine`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from app.domain.edit import DELETABLE
from app.domain.event import NewEvent
from app.domain.job import ClaimToken, JobId, NewJob, WorkerId
from app.domain.outcome import (
    Cancelled,
    Completed,
    DeadLettered,
    ErrorInfo,
    Held,
    Interrupted,
    Outcome,
    Retried,
    Settlement,
    Snoozed,
    Suspended,
)
from app.domain.snapshot import JobView
from app.domain.state import LIVE, DeadReason, State, is_legal
from app.domain.step import NewStep, NewWait, Place, RunHistory, StepKind
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.support.drivers import PostgresEnv
from tests.support.twins import START, Pair, Side, Twins

T = TypeVar("T")

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
MOST_JOBS = 14

names = st.sampled_from(["a.job", "b.job"])
QUEUES = ("default", "mail")
queues = st.sampled_from(QUEUES)
picks = st.integers(min_value=0, max_value=50)
delays = st.sampled_from([SECOND, 30 * SECOND, 5 * MINUTE])
errors = st.sampled_from(
    [
        ErrorInfo(type="ValueError", message="no", code="ORDER_UNKNOWN", traceback="Traceback …"),
        ErrorInfo(type="JobTimeout", message="too long", code="JOB_TIMEOUT"),
        ErrorInfo(type="KeyError", message=""),
    ]
)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Completed, result=st.sampled_from([None, "1", '"\u6f22"']), late=st.booleans()),
    st.builds(Snoozed, delay=delays),
    st.builds(Retried, error=errors, delay=delays),
    st.builds(DeadLettered, error=errors, reason=st.sampled_from(list(DeadReason)[:2])),
    st.builds(Interrupted, cause=st.just("drain"), error=st.none() | errors, delay=st.none() | delays),
    st.builds(Cancelled, reason=st.just("not needed"), error=st.none() | errors),
    st.builds(
        Held,
        reason=st.just("does not fit"),
        error=errors,
        version=st.sampled_from([None, "1", "2", "9"]),
        or_dead=st.booleans(),
    ),
)
shapes = st.fixed_dictionaries(
    {
        "name": names,
        "queue": queues,
        "priority": st.sampled_from([0, 5]),
        "tenant": st.sampled_from(["default", "acme"]),
        "max_crashes": st.sampled_from([1, 2, 3]),
    }
)
keys = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["k1", "k2"]),
        "fingerprint": st.sampled_from([1, 1, 1, 2]),
        "on_conflict": st.sampled_from(["return", "return", "error"]),
    }
)


step_names = st.sampled_from(["s0", "s1", "s2"])
steps = st.builds(
    NewStep,
    name=step_names,
    kind=st.sampled_from([StepKind.RUN, StepKind.TRANSACTION]),
    place=st.builds(Place, branch=st.sampled_from(["", "0.1"]), number=st.integers(0, 3)),
    value=st.sampled_from([None, "1", '"\u6f22"']),
    lasted=st.sampled_from([timedelta(), SECOND]),
)
# What a run may wait for, its place by its name; a call's child is made when it is asked for.
waits = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"name": st.sampled_from(["w0", "w1"]), "kind": st.just(StepKind.SLEEP), "delay": delays}
        ),
        st.fixed_dictionaries(
            {
                "name": st.sampled_from(["w2", "w3"]),
                "kind": st.just(StepKind.EVENT),
                "event": st.just("e"),
                "key": st.sampled_from(["k1", "k2"]),
                "from_now": st.booleans(),
                "delay": st.none() | delays,
            }
        ),
        st.fixed_dictionaries({"name": st.sampled_from(["w4", "w5"]), "kind": st.just(StepKind.CALL)}),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda wait: str(wait["name"]),
)


class DriverModel(RuleBasedStateMachine):
    """The two drivers, what was given to them, and what was last seen in them."""

    def __init__(self, runner: asyncio.Runner, postgres: PostgresEnv) -> None:
        super().__init__()
        self.twins = self._twins(runner, postgres)
        self.jobs: list[NewJob] = []
        self.tokens: list[Pair[ClaimToken]] = []
        self.events: list[NewEvent] = []
        self.views: dict[JobId, JobView] = {}
        self.runs: dict[JobId, RunHistory] = {}
        self.claimed: dict[JobId, int] = {}
        self.ever_fair: set[str] = set()

    def _twins(self, runner: asyncio.Runner, postgres: PostgresEnv) -> Twins:
        return Twins(runner, postgres)

    # --- what holds after every command

    @invariant()
    def everything_reads_the_same_and_moved_along_the_table(self) -> None:
        stats, found, runs = self.twins.everything([job.id for job in self.jobs])
        views = {view.id: view for view in found}
        assert Counter(view.state for view in views.values()) == Counter(stats.by_state)
        for job_id, view in views.items():
            before = self.views.get(job_id)
            source = None if before is None else before.state
            assert source is view.state or is_legal(source, view.state)
            assert before is None or before.counters.claim_no <= view.counters.claim_no
        assert all(self.views[job_id].state in DELETABLE for job_id in self.views.keys() - views.keys())
        holders = Counter((v.name, v.tenant, v.key) for v in views.values() if v.key is not None and v.state in LIVE)
        assert all(count == 1 for count in holders.values())
        self.views = views
        self.runs = runs
        for job_id, run in runs.items():
            self._may_wait(views[job_id], run)

    def _may_wait(self, view: JobView, run: RunHistory) -> None:
        """Demand that what waits has something to wait for, and that what has ended for good waits for nothing."""
        names = names_in(run)
        assert len(names) == len(set(names))
        if view.state is State.SUSPENDED:
            assert [wait for wait in run.waits if not wait.has_failed]
        if view.state in {State.DONE, State.CANCELLED}:
            assert run.waits == ()

    # --- steps

    def _job(self, shape: dict[str, Any], **more: Any) -> NewJob:
        number = len(self.jobs)
        # UUIDv7 of the first instant: ids are the same in every replay, and sort as they were made.
        raw = (int(START.timestamp() * 1000) + number) << 80 | 7 << 76 | 2 << 62 | number
        job = NewJob(id=JobId(UUID(int=raw)), payload=f'{{"n": {number}}}', **shape, **more)
        self.jobs.append(job)
        return job

    def _enqueue(self, job: NewJob) -> None:
        self.twins.ask(lambda side: side.driver.enqueue(job))

    def _claim(
        self, pick: int, shares: dict[str, int], known: frozenset[str], room: int, *, alone_ok: bool = True
    ) -> None:
        worker: Pair[WorkerId] = one(self.twins.workers, pick)
        given = tuple(QueueShare(queue=queue, room=most) for queue, most in sorted(shares.items()))

        def claim(side: Side) -> Any:
            request = ClaimRequest(worker_id=side.own(worker), shares=given, names=known, room=room, alone_ok=alone_ok)
            return side.driver.claim(request)

        if not given:
            self.twins.ask(claim)
            return
        for token in self.twins.claim(claim):
            assert token.memory.claim_no > self.claimed.get(token.memory.job_id, 0)
            self.claimed[token.memory.job_id] = token.memory.claim_no
            self.tokens.append(token)

    def _settle(self, given: list[tuple[Pair[ClaimToken], Outcome]]) -> None:
        self.twins.ask(
            lambda side: side.driver.settle([self._settlement(side, token, outcome) for token, outcome in given])
        )

    def _settlement(self, side: Side, token: Pair[ClaimToken], outcome: Outcome) -> Settlement:
        """Give what a worker sends, which knows its job's parent and what its run waits for."""
        job_id = token.memory.job_id
        view, run = self.views.get(job_id), self.runs.get(job_id, RunHistory())
        return Settlement(
            token=side.own(token),
            outcome=outcome,
            is_child=view is not None and view.parent_id is not None,
            has_waits=run.waits != () or isinstance(outcome, Suspended),
            forgets=tuple(wait.name for wait in run.waits if wait.has_failed),
        )

    def _suspended(self, token: Pair[ClaimToken], given: list[dict[str, Any]], shape: dict[str, Any]) -> Outcome:
        """Give a suspension of a run; of a call the child is made, as often as there is room for it."""
        job_id = token.memory.job_id
        run = self.runs.get(job_id, RunHistory())
        there = names_in(run)
        made: list[NewWait] = []
        for wait in given:
            number = int(wait["name"][1:])
            is_known = wait["name"] in there
            child = None
            if wait["kind"] is StepKind.CALL and not is_known:
                if len(self.jobs) >= MOST_JOBS:
                    continue
                child = self._job(shape, parent_id=job_id)
            made.append(NewWait(**wait, place=Place("", number), is_known=is_known, child=child))
        nap = NewWait(name="nap", kind=StepKind.SLEEP, place=Place("", 9), delay=SECOND, is_known="nap" in there)
        return Suspended(waits=tuple(made) or (nap,))

    def _in(self, states: Collection[State]) -> list[JobId]:
        return [job_id for job_id, view in self.views.items() if view.state in states]

    def _running(self) -> list[Pair[ClaimToken]]:
        """The newest token of each running job."""
        running = set(self._in({State.RUNNING}))
        newest = {token.memory.job_id: token for token in self.tokens if token.memory.job_id in running}
        return list(newest.values())


def names_in(run: RunHistory) -> list[str]:
    """Give the names of what is recorded and of what is waited for."""
    return [step.name for step in run.steps] + [wait.name for wait in run.waits]


def one(things: list[T], pick: int) -> T:
    return things[pick % len(things)]
