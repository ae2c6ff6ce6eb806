"""The error family: one class per code, each with its title and its facts.

Raised everywhere, caught by code or class. The refusals of the HTTP edge live in `refusals`, the root in `fault`; both
are reached through this module.
"""

from __future__ import annotations

from .fault import OutlastError
from .refusals import (
    CallbackRefused,
    CountChanged,
    CursorInvalid,
    Forbidden,
    IdempotencyInFlight,
    IdempotencyKeyReused,
    JsonInvalid,
    MediaUnsupported,
    NotFound,
    PreconditionFailed,
    PreconditionRequired,
    QueryTooSlow,
    RateLimited,
    RequestInvalid,
    TenantFull,
    Unauthenticated,
)

__all__ = [
    "Aborted",
    "CallbackRefused",
    "ChildFailed",
    "CountChanged",
    "CrashedTooOften",
    "CursorInvalid",
    "Draining",
    "DriverUnavailable",
    "DriverVolatile",
    "Forbidden",
    "IdempotencyInFlight",
    "IdempotencyKeyReused",
    "IdempotencyMismatch",
    "Internal",
    "JobDuplicate",
    "JobExpired",
    "JobFailed",
    "JobNameTaken",
    "JobNotFound",
    "JobStateConflict",
    "JobTimeout",
    "JobUnknown",
    "JsonInvalid",
    "LeaseLost",
    "LimitUnenforceable",
    "MediaUnsupported",
    "NotFound",
    "NotImplementedYet",
    "OutboxNoTx",
    "OutlastError",
    "PayloadInvalid",
    "PayloadTooLarge",
    "PayloadUnreadable",
    "PreconditionFailed",
    "PreconditionRequired",
    "QueryTooSlow",
    "QueueFull",
    "QueuesEmpty",
    "RateLimited",
    "ReplayDiverged",
    "RequestInvalid",
    "ResultInvalid",
    "ScheduleInvalid",
    "SchemaOutdated",
    "SettingsInvalid",
    "SlotLost",
    "StepDuplicate",
    "StepTimeout",
    "StepTooLarge",
    "TenantFull",
    "TransactionForeign",
    "Unauthenticated",
    "error_classes",
]


class JobDuplicate(OutlastError):
    """The idempotency key is taken by a live job; `existing_id` names it."""

    code = "JOB_DUPLICATE"
    title = "A live job holds this idempotency key"


class IdempotencyMismatch(OutlastError):
    """The key is taken by a job with another payload."""

    code = "IDEMPOTENCY_MISMATCH"
    title = "Same key, other payload"


class JobNotFound(OutlastError):
    """No job with this id, or none this caller may see."""

    code = "JOB_NOT_FOUND"
    title = "No such job"


class JobNameTaken(OutlastError):
    """Two handles share a name, or one handle has two."""

    code = "JOB_NAME_TAKEN"
    title = "Two job types claim one name"


class JobUnknown(OutlastError):
    """No worker has published this job type, or this process cannot evaluate its key or tenant."""

    code = "JOB_UNKNOWN"
    title = "Nobody has published this job type"


class JobTimeout(OutlastError):
    """The attempt ran longer than its timeout or deadline; or a result was awaited, and the job did not end in time."""

    code = "JOB_TIMEOUT"
    title = "Time ran out"


class JobExpired(OutlastError):
    """The job was not started within `max_queue_time`."""

    code = "JOB_EXPIRED"
    title = "The job was never started in time"
    terminal = True


class JobFailed(OutlastError):
    """The job whose result was asked for is dead or cancelled."""

    code = "JOB_FAILED"
    title = "The job ended without a result"


class JobStateConflict(OutlastError):
    """The job's state does not allow this."""

    code = "JOB_STATE_CONFLICT"
    title = "The job's state does not allow this"


class CrashedTooOften(OutlastError):
    """Workers vanished `max_crashes` times while running this job."""

    code = "CRASHED_TOO_OFTEN"
    title = "The job took its worker down too often"
    terminal = True


class QueueFull(OutlastError):
    """The queue is at its maximum depth."""

    code = "QUEUE_FULL"
    title = "The queue is full"
    retryable = True


class QueuesEmpty(OutlastError):
    """A claim named no queue."""

    code = "QUEUES_EMPTY"
    title = "No queue named"


class StepDuplicate(OutlastError):
    """One step name twice in a run."""

    code = "STEP_DUPLICATE"
    title = "A step name is used twice"
    terminal = True


class StepTimeout(OutlastError):
    """A step, or an awaited event that is required, ran out of time."""

    code = "STEP_TIMEOUT"
    title = "A step ran out of time"


class StepTooLarge(OutlastError):
    """A step's result is over the limit."""

    code = "STEP_TOO_LARGE"
    title = "A step's result is too large"
    terminal = True


class ChildFailed(OutlastError):
    """A child job ended dead or cancelled."""

    code = "CHILD_FAILED"
    title = "A child job failed"


class ReplayDiverged(OutlastError):
    """The code asks for other steps than the run has recorded."""

    code = "REPLAY_DIVERGED"
    title = "The code does not match the run's history"


class TransactionForeign(OutlastError):
    """The caller's transaction belongs to another database than the store's."""

    code = "TRANSACTION_FOREIGN"
    title = "The transaction is on another database"
    terminal = True


class PayloadInvalid(OutlastError):
    """The payload does not fit the job type."""

    code = "PAYLOAD_INVALID"
    title = "The payload does not fit the job type"
    terminal = True


class PayloadTooLarge(OutlastError):
    """The payload or the request body is over its limit."""

    code = "PAYLOAD_TOO_LARGE"
    title = "Too large"
    terminal = True


class PayloadUnreadable(OutlastError):
    """A payload, result or value is stored encrypted, and this process cannot read it."""

    code = "PAYLOAD_UNREADABLE"
    title = "Encrypted, and not readable here"


class ResultInvalid(OutlastError):
    """The result cannot be stored as JSON, or is over the limit."""

    code = "RESULT_INVALID"
    title = "The result cannot be stored"


class Aborted(OutlastError):
    """The run was told to stop."""

    code = "ABORTED"
    title = "The run was told to stop"


class Draining(OutlastError):
    """This process takes no more work."""

    code = "DRAINING"
    title = "This process is draining"
    retryable = True


class LeaseLost(OutlastError):
    """The worker's lease has passed; nothing this run does is stored any more."""

    code = "LEASE_LOST"
    title = "The lease is lost"


class SlotLost(OutlastError):
    """The slot of a concurrency limit was given back meanwhile."""

    code = "SLOT_LOST"
    title = "The slot is lost"


class LimitUnenforceable(OutlastError):
    """The store cannot enforce the limits that a job type declares."""

    code = "LIMIT_UNENFORCEABLE"
    title = "The limit cannot be enforced"


class OutboxNoTx(OutlastError):
    """A transaction was required, and there is none that can be written in."""

    code = "OUTBOX_NO_TX"
    title = "No transaction to enqueue in"


class DriverUnavailable(OutlastError):
    """The store cannot be reached or no client is set; whether a write took place is unknown."""

    code = "DRIVER_UNAVAILABLE"
    title = "The store cannot be reached"
    retryable = True


class StoreBusy(DriverUnavailable):
    """Somebody else has what the call needs. The store was there all along: no outage; nothing was written."""


class DriverVolatile(OutlastError):
    """The target store does not survive its process."""

    code = "DRIVER_VOLATILE"
    title = "The target store is volatile"


class NotImplementedYet(OutlastError):
    """This is not built; it is refused rather than accepted and dropped."""

    code = "NOT_IMPLEMENTED"
    title = "Not implemented"
    terminal = True


class ScheduleInvalid(OutlastError):
    """The cron expression or zone is not valid or never fires."""

    code = "SCHEDULE_INVALID"
    title = "The schedule is not valid"


class SettingsInvalid(OutlastError):
    """A setting, flag or declaration cannot work."""

    code = "SETTINGS_INVALID"
    title = "A setting cannot work"


class SchemaOutdated(OutlastError):
    """The database's schema is older than this code."""

    code = "SCHEMA_OUTDATED"
    title = "The database schema is too old"


class Internal(OutlastError):
    """A fault of Outlast's own."""

    code = "INTERNAL"
    title = "A fault inside Outlast"


def error_classes() -> dict[str, type[OutlastError]]:
    """Give every error class by its code, the refusals of the HTTP edge first."""
    return {cls.code: cls for cls in OutlastError.__subclasses__()}
