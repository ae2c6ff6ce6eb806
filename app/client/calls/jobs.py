"""Jobs: enqueue, read, await; what the job verbs of a client describe. Actions on a job are in `actions`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, Unpack

from ...domain.state import State
from ..answers.fleet import Count
from ..answers.runs import JobInFull
from ..answers.shown import EnqueuedJob, Job, Result
from ..call import Answer, Call, Page, get, get_pages, given, path
from ..problem import ProblemError
from ..wire import JobLike, TypeLike, id_of, instant, ms, name_of, to_json

Include: TypeAlias = Literal["payload", "result", "error", "attempts", "steps"]
Sort: TypeAlias = Literal["-created_at", "created_at", "run_at", "-run_at", "finished_at", "-finished_at"]


class CallbackLike(TypedDict):
    """Who is told when a job ends: the webhook by its id, at another `url` of its origin, of these `events`.

    `events` are some of `done`, `dead` and `cancelled`; all of them without it.
    """

    secret_id: str
    url: NotRequired[str]
    events: NotRequired[Sequence[Literal["done", "dead", "cancelled"]]]


class ManyOptions(TypedDict, total=False):
    """What may be said of each of many jobs besides its payload; what is left out is the job type's.

    `run_at` and `delay` exclude each other. `timeout` is one attempt's, at most the job type's own, and so is
    `max_attempts`. `dedupe_for`: the key stays taken at least so long, even when the job has ended.
    """

    queue: str
    priority: int
    run_at: datetime
    delay: timedelta
    max_attempts: int
    timeout: timedelta
    on_conflict: Literal["return", "error"]
    dedupe_for: timedelta
    tags: Sequence[str]
    meta: Mapping[str, Any]
    parent_id: JobLike
    traceparent: str
    callback: CallbackLike


class EnqueueOptions(ManyOptions, total=False):
    """What may be said of one job: it may have an idempotency key of its own, too."""

    idempotency_key: str


class JobFilters(TypedDict, total=False):
    """Which jobs: those that fit all of it.

    Of several states or tags any will do; `tag_all` wants them all. `name` may be a handle. `worker_id` is the worker
    they run on, `error_code` the code of their last attempt's error, `key` their idempotency key.
    """

    state: Sequence[State | str] | State | str
    name: TypeLike
    queue: str
    tenant: str
    tag: Sequence[str] | str
    tag_all: Sequence[str] | str
    key: str
    parent_id: JobLike
    worker_id: int | str
    error_code: str
    created_after: datetime
    created_before: datetime
    finished_after: datetime
    finished_before: datetime
    run_at_after: datetime
    run_at_before: datetime


def enqueue(job_type: TypeLike, payload: object, **options: Unpack[EnqueueOptions]) -> Call[EnqueuedJob]:
    """Enqueue one job of a type, which is a handle or a name; durable when this returns.

    `payload` is the body's model or a mapping of its fields. A repetition after a lost answer never makes a second job.
    An idempotency key that is taken gives the job that holds it with `deduped`.

    Raises:
        PayloadInvalid: the payload has no JSON form. RequestInvalid: a time without a zone, a duration without a unit.
        ProblemError: `JOB_UNKNOWN`, `PAYLOAD_INVALID`, `JOB_DUPLICATE` under `on_conflict="error"` with `existing_id`
            in its details, `IDEMPOTENCY_MISMATCH`, `QUEUE_FULL`.
    """
    body = _body(job_type, payload, options)
    return Call(method="POST", path="/v1/jobs", read=_enqueued, body=body, headers=_trace(options))


def enqueue_many(
    job_type: TypeLike, payloads: Iterable[object], **options: Unpack[ManyOptions]
) -> Call[tuple[EnqueuedJob, ...]]:
    """Enqueue up to 1,000 jobs of a type, all or none, with options that hold for each; answers in order.

    Keys are the job type's to compute. An answer says which job it is; `get` gives the job.

    Raises:
        ProblemError: what `enqueue` raises, of the first job that is refused: `index` in its details says which.
    """
    jobs = [_body(job_type, payload, options) for payload in payloads]
    return Call(
        method="POST", path="/v1/job-batches", read=_enqueued_many, body={"jobs": jobs}, headers=_trace(options)
    )


def enqueue_each(
    job_type: TypeLike, payloads: Iterable[object], **options: Unpack[ManyOptions]
) -> Call[tuple[EnqueuedJob | ProblemError, ...]]:
    """Enqueue up to 1,000 jobs of a type, each for itself; gives for each, in order, its job or why it was refused.

    Unlike the others it is not repeated when no answer comes: some may have been stored, and a job type that computes
    no key would have them twice.

    Raises:
        UnreachableError: no answer came; `maybe_done` says whether some may have been stored.
    """
    jobs = [_body(job_type, payload, options) for payload in payloads]
    return Call(
        method="POST",
        path="/v1/job-batches",
        read=_enqueued_each,
        body={"jobs": jobs, "atomic": False},
        headers=_trace(options),
        is_kept=False,
    )


def get_job(job: JobLike, *, include: Sequence[Include] = ()) -> Call[JobInFull]:
    """Give a job as it stands, its attempts and the first of its steps with it on demand.

    The id of a staged job leads to the job it became. `error` in `include` is the error's traceback.
    """
    return get(path("v1", "jobs", id_of(job)), JobInFull, include=list(include) or None)


def list_jobs(
    *,
    limit: int | None = None,
    sort: Sort | None = None,
    include: Sequence[Literal["payload", "result", "error"]] = (),
    **which: Unpack[JobFilters],
) -> Call[Page[Job]]:
    """Give all jobs that fit, newest first or as `sort` says, page by page as they are read.

    `limit` is how many come in one page. By `run_at` delayed jobs are sorted, by `finished_at` dead and cancelled ones.

    Raises:
        ProblemError: `REQUEST_INVALID`, for a sort without an index; `FORBIDDEN`, for a payload without the scope.
    """
    return get_pages("/v1/jobs", Job, limit=limit, sort=sort, include=list(include) or None, **_filters(which))


def count_jobs(**which: Unpack[JobFilters]) -> Call[Count]:
    """Count the jobs that fit, up to 10,000: `capped` says that there are more."""
    return Call(method="GET", path="/v1/jobs", read=_count, query={"count": "true", "limit": 1, **_filters(which)})


def get_result(job: JobLike) -> Call[Result]:
    """Give what a job returned; while it has not ended, its state and None.

    Raises:
        ProblemError: `JOB_FAILED`, with the `error` in its details: the job is dead or cancelled.
    """
    return get(path("v1", "jobs", id_of(job), "result"), Result)


def _filters(which: JobFilters) -> dict[str, object]:
    fields: dict[str, object] = {**which}
    if "name" in which:
        fields["name"] = name_of(which["name"])
    if "parent_id" in which:
        fields["parent_id"] = id_of(which["parent_id"])
    for name, value in which.items():
        if isinstance(value, datetime):
            fields[name] = instant(value)
    return fields


def _count(answer: Answer) -> Count:
    return Count.model_validate(answer.json()["count"])


def _trace(options: ManyOptions) -> dict[str, str]:
    return {"traceparent": options["traceparent"]} if "traceparent" in options else {}


def _body(job_type: TypeLike, payload: object, options: ManyOptions) -> dict[str, Any]:
    fields: dict[str, Any] = {**options}
    fields.pop("traceparent", None)
    for name in ("delay", "timeout", "dedupe_for"):
        fields[f"{name}_ms"] = ms(fields.pop(name, None))
    fields["run_at"] = instant(options.get("run_at"))
    fields["parent_id"] = None if "parent_id" not in options else id_of(options["parent_id"])
    fields["tags"] = list(options.get("tags") or ()) or None
    fields["meta"] = None if options.get("meta") is None else to_json(options["meta"])
    # A payload may be null, and is never left out.
    return {"name": name_of(job_type), "payload": to_json(payload), **given(**fields)}


def _enqueued_many(answer: Answer) -> tuple[EnqueuedJob, ...]:
    return tuple(EnqueuedJob.model_validate(item["job"]) for item in answer.json()["items"])


def _enqueued_each(answer: Answer) -> tuple[EnqueuedJob | ProblemError, ...]:
    return tuple(
        EnqueuedJob.model_validate(item["job"])
        if item["problem"] is None
        else ProblemError(item["status"], item["problem"])
        for item in answer.json()["items"]
    )


def _enqueued(answer: Answer) -> EnqueuedJob:
    found = EnqueuedJob.model_validate_json(answer.body)
    whole = answer.json().get("state") is not None
    return found.model_copy(update={"job": Job.model_validate_json(answer.body)}) if whole else found
