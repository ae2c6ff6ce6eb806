"""The commands of the state machine that are an operator's: run now, patch, delete, duplicate, and their audit."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from app.domain.audit import Action, AuditEntry, AuditQuery
from app.domain.edit import DELETABLE, EDITABLE, JobPatch, version_of
from app.domain.job import JobId
from app.domain.state import State
from tests.properties.driver_model import HOUR, MINUTE, MOST_JOBS, keys, one, picks, shapes
from tests.properties.run_rules import RunRules
from tests.support.audit import an_entry
from tests.support.twins import Side

fields = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.sampled_from([0, 5, 9]),
        "run_at": st.sampled_from([-MINUTE, timedelta(), MINUTE, HOUR]),
        "tags": st.sampled_from([(), ("a",), ("a", "b")]),
        "max_attempts": st.sampled_from([1, 25]),
    },
)
tenants = st.sampled_from([None, None, None, "acme"])


class ActionRules(RunRules):
    """Commands in any order."""

    @precondition(lambda self: self.jobs)
    @rule(pick=picks, tenant=tenants, is_any=st.booleans())
    def run_now(self, pick: int, tenant: str | None, is_any: bool) -> None:
        job_id = self._chosen(pick, {State.DELAYED, State.SUSPENDED}, is_any=is_any)
        audit = self._entry(Action.JOB_RUN_NOW, job_id)
        self.twins.ask(lambda side: side.driver.run_now(job_id, tenant=tenant, audit=audit))
        self._audit_agrees()

    @precondition(lambda self: self.jobs)
    @rule(pick=picks, tenant=tenants, given=fields, is_any=st.booleans(), is_seen=st.booleans())
    def patch(self, pick: int, tenant: str | None, given: dict[str, Any], is_any: bool, is_seen: bool) -> None:
        job_id = self._chosen(pick, EDITABLE, is_any=is_any)
        if "run_at" in given:
            given = {**given, "run_at": self.twins.now() + given["run_at"]}
        view = self.views.get(job_id)
        versions = frozenset({version_of(view)}) if is_seen and view is not None else None
        audit = self._entry(Action.JOB_UPDATE, job_id)

        def patch(side: Side) -> Any:
            return side.driver.patch(job_id, JobPatch(**given), versions=versions, tenant=tenant, audit=audit)

        self.twins.ask(patch)
        self._audit_agrees()

    @precondition(lambda self: self.jobs)
    @rule(pick=picks, tenant=tenants, is_any=st.booleans())
    def delete(self, pick: int, tenant: str | None, is_any: bool) -> None:
        job_id = self._chosen(pick, DELETABLE, is_any=is_any)
        audit = self._entry(Action.JOB_DELETE, job_id)
        self.twins.ask(lambda side: side.driver.delete(job_id, tenant=tenant, audit=audit))
        self._audit_agrees()

    @precondition(lambda self: self.jobs and len(self.jobs) < MOST_JOBS)
    @rule(pick=picks, shape=shapes, key=st.none() | keys)
    def place(self, pick: int, shape: dict[str, Any], key: dict[str, Any] | None) -> None:
        job = self._job(shape, **(key or {}))
        audit = self._entry(Action.JOB_DUPLICATE, one(self.jobs, pick).id)
        self.twins.ask(lambda side: side.driver.place(job, audit=audit))
        self._audit_agrees()

    def _chosen(self, pick: int, states: frozenset[State] | set[State], *, is_any: bool) -> JobId:
        every = [job.id for job in self.jobs]
        return one(every if is_any else self._in(states) or every, pick)

    def _entry(self, action: Action, job_id: JobId) -> AuditEntry:
        self.entries = getattr(self, "entries", 0) + 1
        return an_entry(action, job_id, id=UUID(int=self.entries))

    def _audit_agrees(self) -> None:
        async def rows(side: Side) -> object:
            page = await side.driver.audit(AuditQuery(limit=200))
            return [replace(row, seq=0) for row in page.items]  # numbers may be left out, and are each store's own

        self.twins.ask(rows)
