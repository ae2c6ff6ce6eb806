"""`include=` of a job: what a representation carries beyond what it has anyway, each for whoever may read it.

Payload and result need the scope `payload:read`, asked for or not; who asks for them by name without it is refused, not
given less. Called by the routers of jobs.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ..control.render import Document
from ..control.represent import attempt_document
from ..control.run_documents import step_document, wait_document
from ..domain.snapshot import JobView
from .auth import Identity, Scope
from .cursor import write_number_cursor
from .services import HttpServices

Include: TypeAlias = Literal["payload", "result", "error", "attempts", "steps"]
ListInclude: TypeAlias = Literal["payload", "result", "error"]
INCLUDES = frozenset({"include"})
# With these, a page holds up to 1.25 MiB for each job.
LARGE = frozenset({"payload", "result"})
# As many as a page of `/steps`, whose first one this is.
STEPS_SHOWN = 200


def _words(value: object) -> object:
    """Take words apart: several parameters, or one with commas."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return [word for part in value for word in part.split(",")]
    return value


class JobParams(BaseModel):
    """The query of `GET /v1/jobs/{id}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    include: Annotated[list[Include], BeforeValidator(_words)] = Field(
        default_factory=list,
        max_length=len(get_args(Include)),
        description="`error`: its traceback, too. `attempts`, `steps`: what those paths give, of steps the first page."
        " Payload and result are there anyway, for keys that may read them. Several, or one with commas.",
    )


ListIncludes: TypeAlias = Annotated[list[ListInclude], BeforeValidator(_words)]


def check_included(identity: Identity, words: frozenset[str]) -> None:
    """Raise `FORBIDDEN` when what is asked for by name may not be read."""
    if words & LARGE:
        identity.check(Scope.PAYLOAD_READ)


def with_traceback(document: Document, view: JobView) -> Document:
    """Give a job's document with the traceback of its error."""
    error = document["error"]
    if view.error is None or not isinstance(error, dict):
        return document
    return document | {"error": error | {"traceback": view.error.traceback}}


async def included(services: HttpServices, identity: Identity, view: JobView, words: frozenset[str]) -> Document:
    """Give what `attempts` and `steps` add to a job's document. Raises `JOB_NOT_FOUND` when it is gone by now."""
    more: Document = {}
    if "attempts" in words:
        attempts = await services.jobs.attempts(view.id, tenant=identity.tenant)
        more["attempts"] = {"items": [attempt_document(attempt) for attempt in attempts]}
    if "steps" in words:
        more["steps"] = await _steps(services, identity, view)
    return more


async def _steps(services: HttpServices, identity: Identity, view: JobView) -> Document:
    with_value, job_id = identity.may(Scope.PAYLOAD_READ), view.id
    values = STEPS_SHOWN if with_value else 0
    run = await services.runs.run(job_id, tenant=identity.tenant, values=values)
    shown = run.history.steps[:STEPS_SHOWN]
    is_all = len(shown) == len(run.history.steps)
    redact = await services.jobs.redaction.of(view.name) if with_value and shown else ()
    return {
        "items": [step_document(step, with_value=with_value, redact=redact) for step in shown],
        "waits": [wait_document(wait) for wait in run.history.waits],
        "children": list(run.children),
        "next_cursor": None if is_all else write_number_cursor(shown[-1].seq, ("steps", str(job_id))),
    }
