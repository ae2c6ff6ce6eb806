"""What a test looks at: jobs as they stand, their attempts and steps, and whether something was enqueued.

A part of `Env`, apart because nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from pydantic import BaseModel

from ..domain.errors import JobNotFound, RequestInvalid
from ..domain.job import Enqueued, JobId
from ..domain.json_text import decode
from ..domain.snapshot import AttemptView, JobView
from ..domain.state import State
from ..domain.step import RunHistory, RunView
from ..drivers.protocol import JobDriver
from ..drivers.reading import ListQuery
from ..jobs.handle import JobHandle

JobRef: TypeAlias = Enqueued | JobView | UUID | str
TypeRef: TypeAlias = JobHandle[Any, Any] | str

_PAGE = 200
_SHOWN = 20


class Looks:
    """A store that a test looks at."""

    def __init__(self, driver: JobDriver) -> None:
        self._driver = driver

    async def job(self, job: JobRef) -> JobView:
        """Give a job as it stands, payload and result as JSON text.

        Raises:
            JobNotFound: there is none of that id.
        """
        view = await self._driver.describe(id_of(job))
        if view is None:
            raise JobNotFound(f"there is no job {id_of(job)} in this test's store", fix="pass what enqueue gave")
        return view

    async def jobs(self, of: TypeRef | None = None, *, state: State | str | None = None) -> tuple[JobView, ...]:
        """Give all jobs, oldest first: of one type, in one state.

        Raises:
            RequestInvalid: there is no such state.
        """
        query = ListQuery(
            states=frozenset() if state is None else frozenset({_state(state)}),
            name=None if of is None else _name(of),
            limit=_PAGE,
        )
        found: list[JobView] = []
        while True:
            page = await self._driver.list(query)
            found += page.items
            if page.next_after is None:
                break
            query = ListQuery(states=query.states, name=query.name, limit=_PAGE, before=page.next_after)
        views = [await self._driver.describe(view.id) for view in reversed(found)]
        return tuple(view for view in views if view is not None)

    async def attempts(self, job: JobRef) -> tuple[AttemptView, ...]:
        """Give the ended attempts of a job, in order; errors are as they were stored."""
        return await self._driver.attempts(id_of(job))

    async def run(self, job: JobRef) -> RunView:
        """Give a job's run: steps, waits, lines, progress and children.

        Raises:
            JobNotFound: there is no such job.
        """
        found = await self._driver.run(id_of(job))
        if found is None:
            raise JobNotFound(f"there is no job {id_of(job)} in this test's store", fix="pass what enqueue gave")
        return found

    async def steps(self, job: JobRef) -> RunHistory:
        """Give what is recorded of a job's run, and what it waits for."""
        return (await self.run(job)).history

    async def assert_enqueued(
        self,
        of: TypeRef,
        payload: Mapping[str, object] | BaseModel | None = None,
        *,
        count: int | None = None,
        state: State | str | None = None,
        queue: str | None = None,
    ) -> tuple[JobView, ...]:
        """Fail unless jobs of a type were enqueued whose payload has at least these fields; gives them, oldest first.

        At least one, or exactly `count`; 0 says that none was. Jobs count whatever has become of them, or in one
        `state`. Nested objects are compared in part, too, lists as a whole.
        """
        __tracebackhide__ = True
        wanted = _plain(payload)
        views = await self.jobs(of, state=state)
        matching = tuple(
            view
            for view in views
            if (queue is None or view.queue == queue) and _has(decode(view.payload or "null"), wanted)
        )
        if len(matching) != count if count is not None else not matching:
            raise AssertionError(_missing(_name(of), payload, count, matching, views))
        return matching


def id_of(job: JobRef) -> JobId:
    """Give the id of a job.

    Raises:
        RequestInvalid: it is none.
    """
    if isinstance(job, Enqueued | JobView):
        return job.id
    try:
        return JobId(job if isinstance(job, UUID) else UUID(job))
    except (ValueError, AttributeError, TypeError) as exc:
        raise RequestInvalid(f"{job!r} is not a job", fix="pass what enqueue gave, or a job's id") from exc


def _name(of: TypeRef) -> str:
    if isinstance(of, JobHandle):
        return of.name
    if isinstance(of, str):
        return of
    raise RequestInvalid(f"{of!r} is not a job type", fix="pass the function declared with @job, or its name")


def _state(state: State | str) -> State:
    try:
        return State(state)
    except ValueError as exc:
        raise RequestInvalid(f"{state!r} is not a state", fix=f"use one of {', '.join(State)}") from exc


def _plain(payload: Mapping[str, object] | BaseModel | None) -> Any:  # noqa: ANN401 - JSON
    if payload is None:
        return {}
    if isinstance(payload, BaseModel):
        return payload.model_dump(mode="json", by_alias=True)
    if isinstance(payload, Mapping):
        return dict(payload)
    raise RequestInvalid(f"{payload!r} is no part of a payload", fix="pass a mapping of fields, or the payload's model")


def _has(found: object, wanted: object) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(name in found and _has(found[name], wanted[name]) for name in wanted)
    return found == wanted


def _missing(
    name: str, payload: object, count: int | None, matching: Sequence[JobView], views: Sequence[JobView]
) -> str:
    number = "at least one" if count is None else f"exactly {count}"
    with_payload = "" if payload is None else f" with {payload!r}"
    lines = [f"expected {number} job {name}{with_payload}, found {len(matching)}"]
    lines += [f"  {view.state.value:<9} {view.payload}" for view in views[:_SHOWN]]
    if len(views) > _SHOWN:
        lines.append(f"  and {len(views) - _SHOWN} more")
    if not views:
        lines.append(f"  no job {name} was enqueued at all")
    return "\n".join(lines)
