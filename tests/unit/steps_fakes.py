"""A run without a worker: a store that keeps its steps and waits, and attempts at it, one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from app.domain.errors import Aborted, DriverUnavailable, LeaseLost
from app.domain.job import ClaimToken, JobId, RunId
from app.domain.step import NewStep, NewWait, RunHistory, StepView, WaitView
from app.domain.verdict import Reason
from app.steps.api import Steps
from app.steps.recorder import Recorder
from app.steps.suspension import Suspension
from app.steps.tools import Tools
from app.steps.values import Values
from tests.unit.jobs_fakes import claimed

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Signal:
    """A signal that is told by hand; `held` is how many hold its cancellation back."""

    def __init__(self) -> None:
        self.first: Reason | None = None
        self.held = 0

    def raise_if_aborted(self) -> None:
        """Raise once told."""
        if self.first is not None:
            raise Aborted("told to stop", fix="none")

    @contextmanager
    def in_store(self) -> Iterator[None]:
        """Count."""
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1


class FakeRun:
    """One run: `attempt` calls a body with its steps; what it records is there for the next."""

    def __init__(self, *, max_bytes: int = 1000, step_timeout: timedelta | None = None) -> None:
        self.steps: dict[str, StepView] = {}
        self.waits: dict[str, WaitView] = {}
        self.version = "1"
        self.key: str | None = None
        self.is_held = True
        self.reads = 0
        self.committed: list[list[str]] = []
        self.rolled_back: list[list[str]] = []
        self.away = 0  # calls that fail before the store is back
        self.claim_no = 0
        self.signal = Signal()
        self._max_bytes = max_bytes
        self._step_timeout = step_timeout

    async def attempt(self, body: Callable[[Steps], Awaitable[Any]]) -> Any:
        """Call a body and give what it returns; its waits are kept when it is suspended."""
        self.signal = Signal()
        self.claim_no += 1
        job = claimed(claim_no=self.claim_no)
        job = job._replace(run_id=RunId(job.token.job_id), key=self.key)
        with ThreadPoolExecutor(2) as pool:
            values = Values(max_bytes=self._max_bytes)
            tools = Tools(
                store=cast("Any", self),
                pool=pool,
                values=values,
                monotonic=asyncio.get_running_loop().time,
                code_version=self.version,
            )
            self.recorder = Recorder(
                tools,
                job,
                signal=self.signal,
                task=asyncio.current_task(),
                store_now=lambda: NOW,
                step_timeout=self._step_timeout,
            )
            try:
                value = await body(Steps(self.recorder))
                await self.recorder.finish()
            except Suspension:
                for wait in self.recorder.waits:
                    self.waits.setdefault(wait.name, self._begun(wait))
                raise
            return value

    def over(self, name: str, value: str | None = None, *, has_event: bool = False) -> None:
        """End a wait."""
        wait = self.waits.pop(name)
        step = NewStep(name=name, kind=wait.kind, place=wait.place, value=value)
        self.steps[name] = replace(self._view(step), has_event=has_event)

    def fail(self, name: str, **facts: Any) -> None:
        """Have the child of a call end without a result."""
        self.waits[name] = replace(self.waits[name], **facts)

    # --- the store ---------------------------------------------------------------------------------------------------

    async def history(self, job_id: JobId, run_id: RunId) -> RunHistory:
        """Give what is recorded."""
        self.reads += 1
        self._is_there()
        return RunHistory(steps=tuple(self.steps.values()), waits=tuple(self.waits.values()))

    async def record_step(self, token: ClaimToken, step: NewStep) -> bool:
        """Record."""
        assert self.signal.held > 0, "a step is recorded where no cancellation can cut it"
        self._is_there()
        if self.is_held:
            self.steps[step.name] = self._view(step)
        return self.is_held

    @asynccontextmanager
    async def step_transaction(
        self, token: ClaimToken, step: NewStep, *, bind: object | None = None
    ) -> AsyncIterator[list[str]]:
        """Give a session that is a list: committed with the step, or neither."""
        session: list[str] = [] if bind is None else [str(bind)]
        try:
            yield session
        except BaseException:
            self.rolled_back.append(session)
            raise
        assert self.signal.held > 0, "a commit begins where no cancellation can cut it"
        if not self.is_held:
            raise LeaseLost("gone", fix="none")
        self.committed.append(session)
        self.steps[step.name] = self._view(step)

    def _is_there(self) -> None:
        if self.away:
            self.away -= 1
            raise DriverUnavailable("away", fix="wait")

    def _view(self, step: NewStep) -> StepView:
        return StepView(
            seq=len(self.steps) + 1,
            name=step.name,
            kind=step.kind,
            place=step.place,
            value=step.value,
            claim_no=self.claim_no,
            code_version=self.version,
            started_at=NOW - step.lasted,
            ended_at=NOW,
        )

    def _begun(self, wait: NewWait) -> WaitView:
        return WaitView(
            name=wait.name,
            kind=wait.kind,
            place=wait.place,
            began_at=NOW,
            code_version=self.version,
            due_at=wait.until if wait.delay is None else NOW + wait.delay,
            event=wait.event,
            key=wait.key,
            child_id=None if wait.child is None else wait.child.id,
        )
