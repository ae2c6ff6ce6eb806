"""The commands of the state machine that are about runs: steps, waits, events, other code, forks."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from app.domain.event import EventId, NewEvent
from app.domain.job import JobId
from app.domain.snapshot import Expired
from app.domain.state import State
from app.domain.step import NewNotes, NewStep, RetryMode, RunHistory
from tests.properties.driver_model import MOST_JOBS, DriverModel, names_in, one, picks, shapes, steps, waits
from tests.support.twins import Side

payloads = st.sampled_from(["null", '"\u6f22"'])


class RunRules(DriverModel):
    """Commands in any order."""

    # --- workers

    @precondition(lambda self: self.tokens)
    @rule(pick=picks, step=steps, is_any=st.booleans())
    def record_step(self, pick: int, step: NewStep, is_any: bool) -> None:
        token = one(self.tokens if is_any else self._running() or self.tokens, pick)
        self.twins.ask(lambda side: side.driver.record_step(side.own(token), step))

    @precondition(lambda self: self._running())
    @rule(pick=picks, given=waits, shape=shapes)
    def suspend(self, pick: int, given: list[dict[str, Any]], shape: dict[str, Any]) -> None:
        token = one(self._running(), pick)
        self._settle([(token, self._suspended(token, given, shape))])

    @precondition(lambda self: self.tokens)
    @rule(pick=picks, given=waits, shape=shapes)
    def suspend_with_any_token_there_ever_was(
        self, pick: int, given: list[dict[str, Any]], shape: dict[str, Any]
    ) -> None:
        token = one(self.tokens, pick)
        self._settle([(token, self._suspended(token, given, shape))])

    @precondition(lambda self: self.tokens)
    @rule(pick=picks, lines=st.lists(st.sampled_from(["one", "two"]), max_size=2), value=st.none() | st.floats(0, 1))
    def note(self, pick: int, lines: list[str], value: float | None) -> None:
        token = one(self._running() or self.tokens, pick)
        progress = None if value is None else (value, "far")

        def note(side: Side) -> Any:
            return side.driver.note([NewNotes(side.own(token), lines=tuple(lines), progress=progress)])

        self.twins.ask(note)

    # --- events and time

    @rule(key=st.sampled_from(["k1", "k2"]), tenant=st.sampled_from(["default", "acme"]), payload=payloads)
    def emit(self, key: str, tenant: str, payload: str) -> None:
        event_id = EventId(UUID(int=len(self.events) + 1))
        event = NewEvent(id=event_id, tenant=tenant, name="e", key=key, payload=payload)
        self.events.append(event)
        self.twins.ask(lambda side: side.driver.emit(event))

    @precondition(lambda self: self.events)
    @rule(pick=picks)
    def emit_again(self, pick: int) -> None:
        event = one(self.events, pick)
        self.twins.ask(lambda side: side.driver.emit(event))

    @rule()
    def wake(self) -> None:
        self.twins.ask(lambda side: side.driver.wake())

    @rule()
    def sweep_waits(self) -> None:
        self.twins.ask(lambda side: side.driver.sweep_waits())

    @rule(batch=st.sampled_from([1, 1000]))
    def release_due(self, batch: int) -> None:
        self.twins.ask(lambda side: side.driver.release_due(batch))

    @rule()
    def due(self) -> None:
        # Times are not compared: a driver may keep the next one in mind, and these forget all they hold between runs.
        async def due(side: Side) -> tuple[object, ...]:
            found, expired = await side.driver.due(), list[Expired]()
            if found.must_expire:  # or there are limits of ended jobs to clear away, which this does
                expired += await side.driver.expire()
                found = await side.driver.due()
            moved = found.must_reap, found.must_release, found.must_free, found.is_gated
            return tuple(expired), found.must_expire, *moved

        self.twins.ask(due)

    # --- operators

    @precondition(lambda self: self.jobs)
    @rule(pick=picks)
    def release_held(self, pick: int) -> None:
        job_id = self._any_of({State.HELD}, pick)
        self.twins.ask(lambda side: side.driver.release_held(job_id))

    @precondition(lambda self: self.jobs)
    @rule(pick=picks, mode=st.sampled_from(RetryMode), step=st.none() | picks)
    def retry_a_run(self, pick: int, mode: RetryMode, step: int | None) -> None:
        job_id = self._any_of({State.DEAD, State.CANCELLED, State.HELD}, pick)
        from_step = self._step_of(job_id, step)
        self.twins.ask(lambda side: side.driver.retry(job_id, mode=mode, from_step=from_step))

    @precondition(lambda self: self.jobs and len(self.jobs) < MOST_JOBS)
    @rule(pick=picks, step=st.none() | picks)
    def fork(self, pick: int, step: int | None) -> None:
        old = one(self.jobs, pick)
        from_step = self._step_of(old.id, step)
        new = self._job({"name": old.name, "parent_id": old.id})
        self.twins.ask(lambda side: side.driver.fork(old.id, new_id=new.id, from_step=from_step))

    def _any_of(self, states: set[State], pick: int) -> JobId:
        return one(self._in(states) or [job.id for job in self.jobs], pick)

    def _step_of(self, job_id: JobId, pick: int | None) -> str | None:
        """Give a step that the job's run has recorded, or a wait of it, or a name that it does not know."""
        if pick is None:
            return None
        return one([*names_in(self.runs.get(job_id, RunHistory())), "never"], pick)
