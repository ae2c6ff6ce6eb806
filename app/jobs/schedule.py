"""Schedules as authors declare them: `schedule("nightly", job=report, cron="0 3 * * *", tz="Europe/Berlin")`.

A schedule has no body: at each of its times it enqueues a job, as an enqueue from code with the same options would.
Declaring one registers nothing, and finds out at once what could not work at three in the morning. Read by the
registry; `ScheduledJob` is what any process can make of the published declaration.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, TypedDict, Unpack

from ..domain.errors import OutlastError, ScheduleInvalid
from ..domain.job import NAME_PATTERN, NewJob, OnConflict
from ..domain.schedule import DEFAULT_MAX_CATCH_UP, MOST_CATCH_UP, CatchUp, Declaration, Overlap
from .admission import Admission
from .cron import Cron, cron_of
from .describe import milliseconds
from .enqueue import request_of
from .handle import JobHandle
from .jobtype import JobType
from .policy import is_name
from .request import EnqueueRequest

_DURATIONS = ("delay", "timeout", "dedupe_for")
_OPTIONS = (
    "queue",
    "priority",
    "max_attempts",
    "idempotency_key",
    "on_conflict",
    "tags",
    "meta",
    "tenant",
    "enqueued_by",
    *_DURATIONS,
)
# Of a path beside the schedules.
_TAKEN_NAMES = frozenset({"preview"})
_MISPLACED = {
    "run_at": "leave run_at= out: the expression says when; delay= puts every job off",
    "session": "leave session= out: a scheduler has no transaction of yours",
    "mode": "leave mode= out: a scheduler has no transaction of yours",
    "parent_id": "leave parent_id= out: a scheduled job has no parent",
    "traceparent": "leave traceparent= out: every occurrence begins a trace of its own",
}


class ScheduleOptions(TypedDict, total=False):
    """What a schedule may say about each job it enqueues: the options of an enqueue."""

    queue: str | None
    priority: int | None
    delay: timedelta | None
    max_attempts: int | None
    timeout: timedelta | None
    idempotency_key: str | None
    on_conflict: OnConflict | None
    dedupe_for: timedelta | None
    tags: list[str] | tuple[str, ...]
    meta: dict[str, Any] | None
    tenant: str | None
    enqueued_by: str | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Schedule:
    """A declared schedule. Two are never equal; one registered twice is one registration."""

    name: str
    job: JobHandle[Any, Any]
    cron: Cron
    catch_up: CatchUp
    overlap: Overlap
    max_catch_up: int
    request: EnqueueRequest
    place: str

    def declaration(self, *, code_version: str) -> Declaration:
        """Give what a scheduler publishes; the same code gives the same bytes."""
        document = {
            "job": self.job.name,
            "doc": self.job.doc,
            "catch_up": self.catch_up.value,
            "overlap": self.overlap.value,
            "max_catch_up": self.max_catch_up,
            "payload": self.request.payload_text,
            "options": _options_document(self.request),
        }
        return Declaration(
            name=self.name,
            code_version=code_version,
            cron=self.cron.expression,
            tz=self.cron.tz,
            document=json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":")),
        )

    def new_job(self, admission: Admission) -> NewJob:
        """Give the job of one occurrence, admitted as any other. Raises what admission raises."""
        return admission.admit(self.job.job_type, self.request)


@dataclass(frozen=True, kw_only=True)
class ScheduledJob:
    """What a published declaration says; read in processes that do not load its module."""

    name: str
    document: str

    @cached_property
    def content(self) -> dict[str, Any]:
        """Give the document as data.

        Raises:
            ScheduleInvalid: it is not one this release can read.
        """
        try:
            content = json.loads(self.document)
            _ = content["job"], content["payload"], content["options"]
        except (ValueError, KeyError, TypeError) as exc:
            raise ScheduleInvalid(
                f"the published schedule {self.name} cannot be read", fix="start a scheduler of this release"
            ) from exc
        found: dict[str, Any] = content
        return found

    def new_job(self, job_type: JobType, admission: Admission) -> NewJob:
        """Give the job of an occurrence by the published job type. Raises what admission raises."""
        options = dict(self.content["options"])
        for field in _DURATIONS:
            value = options.pop(f"{field}_ms", None)
            options[field] = None if value is None else timedelta(milliseconds=value)
        request = EnqueueRequest(name=self.content["job"], payload_text=self.content["payload"], **options)
        return admission.admit(job_type, request)


def schedule(
    name: str,
    *,
    job: JobHandle[Any, Any],
    cron: str,
    tz: str,
    catch_up: str = CatchUp.LATEST,
    overlap: str = Overlap.ALLOW,
    max_catch_up: int = DEFAULT_MAX_CATCH_UP,
    payload: object = None,
    **options: Unpack[ScheduleOptions],
) -> Schedule:
    """Declare a schedule: `job` is enqueued with `payload` whenever `cron` holds in the zone `tz`.

    `catch_up` is for times that no scheduler was there for: the `latest` of them fires, `all` up to the newest
    `max_catch_up` do, or `none`. With `overlap="skip"` an occurrence is skipped while a job of an earlier one has not
    ended. `payload` is the job's model, or a mapping of its fields; the options are those of an enqueue.

    Raises:
        ScheduleInvalid: the expression cannot be read or never holds, there is no such zone, or an enqueue with this
            payload and these options would be refused.
    """
    given: dict[str, Any] = dict(options)
    if not is_name(name) or name in _TAKEN_NAMES:
        raise ScheduleInvalid(
            f"{name!a:.80} cannot name a schedule", fix=f"a name must match {NAME_PATTERN}, and not be `preview`"
        )
    given_job: object = job
    if not isinstance(given_job, JobHandle):
        raise ScheduleInvalid(f"job={job!a:.80} of {name} is no job", fix="pass what @job(...) made of the function")
    if not _is_number(max_catch_up) or not 1 <= max_catch_up <= MOST_CATCH_UP:
        raise ScheduleInvalid(
            f"max_catch_up={max_catch_up!r} of {name} cannot work", fix=f"pass a whole number from 1 to {MOST_CATCH_UP}"
        )
    rule = _rule(name, cron, tz)
    made = Schedule(
        name=name,
        job=job,
        cron=rule,
        catch_up=_among(CatchUp, catch_up, f"catch_up of {name}"),
        overlap=_among(Overlap, overlap, f"overlap of {name}"),
        max_catch_up=max_catch_up,
        request=_request(name, job, payload, given),
        place=_place(),
    )
    try:
        made.new_job(Admission())
    except OutlastError as error:
        raise _refused(name, error) from error
    return made


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _rule(name: str, cron: str, tz: str) -> Cron:
    try:
        return cron_of(cron, tz)
    except ScheduleInvalid as error:
        raise ScheduleInvalid(f"the schedule {name}: {error.cause}", fix=error.fix) from error
    except TypeError as error:  # what cannot be looked up is no text
        raise ScheduleInvalid(f"the schedule {name} has no cron expression", fix="pass cron='0 3 * * *'") from error


def _request(name: str, job: JobHandle[Any, Any], payload: object, options: dict[str, Any]) -> EnqueueRequest:
    for option, fix in _MISPLACED.items():
        if option in options:
            raise ScheduleInvalid(f"{option}= has no meaning for the schedule {name}", fix=fix)
    try:
        request = request_of(job, {} if payload is None else payload, options)
    except OutlastError as error:
        raise _refused(name, error) from error
    return request if request.enqueued_by is not None else replace(request, enqueued_by=f"schedule:{name}")


def _refused(name: str, error: OutlastError) -> ScheduleInvalid:
    said = error.details.get("errors")
    more = "".join(f"; {each['pointer'] or '/'}: {each['message']}" for each in said) if isinstance(said, list) else ""
    return ScheduleInvalid(f"an enqueue of the schedule {name} would be refused: {error.cause}{more}", fix=error.fix)


def _among(kind: Any, value: object, what: str) -> Any:  # noqa: ANN401 - one of the kind
    try:
        return kind(value)
    except ValueError as error:
        raise ScheduleInvalid(
            f"{what} is {value!a:.80}", fix=f"use one of {', '.join(repr(each.value) for each in kind)}"
        ) from error


def _options_document(request: EnqueueRequest) -> dict[str, object]:
    document: dict[str, object] = {}
    for option in _OPTIONS:
        value = getattr(request, option)
        if option in _DURATIONS:
            document[f"{option}_ms"] = milliseconds(value)
        else:
            document[option] = list(value) if option == "tags" else value
    return document


def _place() -> str:
    """Give file and line of the declaration, for messages."""
    frame = inspect.currentframe()
    for _ in range(2):  # out of here, and out of `schedule`
        frame = None if frame is None else frame.f_back
    return "unknown" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
