"""The one way in: a request becomes a job that every store can take, or is refused with the repair.

HTTP, handles and whoever else enqueues come through `Admission.admit`; what it lets through is final, drivers check
nothing again. Pure but for the id and the clock, which are injected, and for the trace of a process that has one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from uuid_utils.compat import uuid7

from ..domain.errors import Forbidden, JobUnknown, PayloadInvalid
from ..domain.job import DEFAULT_TENANT, JobId, LimitKey, NewJob
from ..domain.json_text import DEFAULT, JsonLimits, decode, fingerprint
from ..domain.text import is_printable, printable_key
from .jobtype import JobType
from .request import EnqueueRequest, parent_of, refuse_request, refuse_unbounded
from .stamp import stamped

__all__ = ["Admission", "EnqueueRequest", "wall_clock"]

ValueT = TypeVar("ValueT")


def wall_clock() -> datetime:
    """Give this process's time; it only bounds `run_at`, row times are the store's."""
    return datetime.now(UTC)  # noqa: TID251 # the default of an injected clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The rules of one process: where ids and time come from, and how large a payload may be."""

    new_id: Callable[[], UUID] = uuid7
    now: Callable[[], datetime] = wall_clock
    limits: JsonLimits = DEFAULT

    def admit(self, job_type: JobType, request: EnqueueRequest) -> NewJob:
        """Turn a request into a job with its id minted, or refuse it; nothing is stored.

        Raises:
            RequestInvalid: a field is of another type or out of bounds (detail `pointer`).
            JsonInvalid: the payload is not JSON that can be kept.
            PayloadTooLarge: the payload is over its limit.
            PayloadInvalid: the payload does not fit the job type, or lacks what key, tenant or limits are made from.
            JobUnknown: the request names another type, or key, tenant or limits need code that is not loaded here.
            Forbidden: the payload belongs to another tenant than the caller.
        """
        if request.name != job_type.name:
            raise JobUnknown(f"a request for {request.name} was put to {job_type.name}", fix="look the type up again")
        refuse_unbounded(request, job_type, self.now)
        parent_id = parent_of(request)
        payload = decode(request.payload_text, limits=self.limits)
        job_type.check_payload(request.payload_text, payload)
        key = _key(job_type, request, payload)
        job_id, queue = JobId(self.new_id()), _or(request.queue, job_type.queue)
        tenant = _tenant(job_type, request, payload)
        limits = _limits(job_type, request, payload) if job_type.limit_rules else ()
        return NewJob(
            id=job_id,
            name=job_type.name,
            payload=request.payload_text,
            queue=queue,
            priority=_or(request.priority, job_type.priority),
            tenant=tenant,
            max_attempts=_or(request.max_attempts, job_type.max_attempts),
            max_crashes=job_type.max_crashes,
            key=key,
            fingerprint=0 if key is None else fingerprint(payload),
            on_conflict=_or(request.on_conflict, job_type.on_conflict),
            dedupe_for=None if key is None else _or(request.dedupe_for, job_type.dedupe_for),
            run_at=request.run_at,
            delay=request.delay or None,
            max_queue_time=job_type.max_queue_time,
            deadline=job_type.deadline,
            timeout=request.timeout,
            parent_id=None if parent_id is None else JobId(parent_id),
            enqueued_by=request.enqueued_by,
            traceparent=stamped(job_type.name, queue, job_id, request.traceparent),
            tags=tuple(request.tags),
            meta=request.meta,
            callback=None if request.callback is None else request.callback.text(),
            limits=limits,
        )


def _key(job_type: JobType, request: EnqueueRequest, payload: object) -> str | None:
    """Take the request's key, else make the declared one; never enqueue without a key that cannot be made."""
    if request.idempotency_key is not None:
        return request.idempotency_key  # its form was checked with the request's other fields
    if job_type.key_rule is None:
        if request.dedupe_for is not None:
            refuse_request("dedupe_for", "needs a key, and neither the request nor the job type has one")
        return None
    key = job_type.evaluate(job_type.key_rule, request.payload_text, payload, "idempotency key")
    wrong = printable_key(key)
    if wrong is not None:
        raise PayloadInvalid(
            f"the idempotency key of {job_type.name} made from this payload cannot be used: {wrong}",
            fix="send values that make 1 to 255 printable characters, or an idempotency_key with the request",
        )
    return key


def _tenant(job_type: JobType, request: EnqueueRequest, payload: object) -> str:
    if job_type.tenant_rule is None:
        return _or(request.tenant, DEFAULT_TENANT)
    tenant = job_type.evaluate(job_type.tenant_rule, request.payload_text, payload, "tenant")
    if not is_printable(tenant):
        raise PayloadInvalid(
            f"the tenant of {job_type.name} made from this payload cannot be used",
            fix="send values that make 1 to 255 printable characters",
        )
    if request.tenant is not None and request.tenant != tenant:
        raise Forbidden(
            f"this payload of {job_type.name} belongs to another tenant than the caller acts for",
            fix="send a payload of the caller's own tenant, or use a key of the other one",
        )
    return tenant


def _limits(job_type: JobType, request: EnqueueRequest, payload: object) -> tuple[LimitKey, ...]:
    """Make the keys of the limits; never enqueue without one that cannot be made. One without a key counts all jobs."""
    made: list[LimitKey] = []
    for name, rule in job_type.limit_rules:
        if rule is None:
            made.append(LimitKey(name, ""))
            continue
        key = job_type.evaluate(rule, request.payload_text, payload, f"key of limit {name}")
        wrong = printable_key(key)
        if wrong is not None:
            raise PayloadInvalid(
                f"the key of limit {name} of {job_type.name} made from this payload cannot be used: {wrong}",
                fix="send values that make 1 to 255 printable characters",
            )
        made.append(LimitKey(name, key))
    return tuple(made)


def _or(asked: ValueT | None, declared: ValueT) -> ValueT:
    return declared if asked is None else asked
