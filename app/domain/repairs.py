"""The repair of every code in general, whatever its message says of the case at hand: for people who look a code up.

Written as Markdown for the page of errors, which is made of it; `GET /problems/{code}` gives it as plain text. A test
holds codes and repairs together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")

REPAIRS: Mapping[str, str] = {
    "ABORTED": (
        "Nothing, if the run was meant to stop. In a handler, let the error pass; it is how a run ends in "
        "order. One that a step raised ends the attempt also where the body catches it."
    ),
    "CALLBACK_REFUSED": "Use an https address that is publicly reachable, or have it allowed.",
    "CHILD_FAILED": (
        "Read the child's attempts, mend the cause, and retry the parent: it makes the call anew, with a new "
        "child. A body that catches this and goes on meets it in every attempt; begin it anew, or from a step "
        "before the call, to have the call made again."
    ),
    "COUNT_CHANGED": "Look at the new count, and confirm again if it is still what you mean.",
    "CRASHED_TOO_OFTEN": (
        "Look for what ended the workers: memory limits, native code, `os._exit`. Run the job alone, mend the "
        "cause, then retry it; a retry gives the crash budget back."
    ),
    "CURSOR_INVALID": "Start at the first page, and pass `next_cursor` on unchanged with the same filters.",
    "DRAINING": "Send the request to another process, or again in a moment.",
    "DRIVER_UNAVAILABLE": (
        "Check that PostgreSQL runs and that `OUTLAST_DATABASE_URL` is right, then repeat the request; "
        "whether it took effect is unknown, so use an idempotency key. In code that enqueues: open a client "
        "with `use_client` first."
    ),
    "DRIVER_VOLATILE": "Name a PostgreSQL database as the target.",
    "FORBIDDEN": "Use a key with the scope and the tenant the message names.",
    "IDEMPOTENCY_IN_FLIGHT": (
        "Repeat the request unchanged, each time after as long as `Retry-After` says: for half a minute, if the process"
        " or the database of the first went away meanwhile."
    ),
    "IDEMPOTENCY_KEY_REUSED": (
        "Send a new `Idempotency-Key` with every new request, and the old one only to repeat a request unchanged."
    ),
    "IDEMPOTENCY_MISMATCH": (
        "Compare your payload with that of the job named in `existing_id`. If the work is the same, send the "
        "same payload; if it is other work, send another key."
    ),
    "INTERNAL": "Look for the request id in the service's log. If it can be repeated, report it with that log entry.",
    "JOB_DUPLICATE": (
        "Use the job named in `existing_id`: it does this work. To start the work anew, wait for that job to "
        "end or cancel it. To get the live job's id as an answer instead of this error, send `on_conflict: "
        '"return"`. On a retry of a dead job: another job has taken the key since; let that one do the work. '
        "As the error of a job that calls others: the job that would answer the call waits for the caller, so "
        "that none would ever end; `cycle` names them, each waiting for the next. Give the child a key of its "
        "own, or enqueue it without waiting for it."
    ),
    "JOB_EXPIRED": "Enqueue it again if it is still wanted. Add workers for the queue, or raise `max_queue_time`.",
    "JOB_FAILED": (
        "Read why with `GET /v1/jobs/{id}/attempts`, mend the cause, then `POST /v1/jobs/{id}/retry`. In code "
        "the error's `details` have the job's `state`, `reason` and last `error`."
    ),
    "JOB_NAME_TAKEN": (
        "The message names both declarations. Rename one of them, or, if it is the same handle imported under "
        "two names, keep one."
    ),
    "JOB_NOT_FOUND": (
        "Check the id, and that you ask the same database and as the same tenant as the enqueue. Jobs that "
        "ended are purged after their retention; ask earlier, or keep the result yourself. An id that was "
        "given out at staging has no job of its own yet, or never: the message says whether it waits for a "
        "relay, was refused (`error` says by what; mend that, then `outlast outbox replay ID`), or whether "
        "its key led to another job, which is `existing_id`: use that one."
    ),
    "JOB_STATE_CONFLICT": (
        "The answer says in `state` where the job is. Retry takes dead and cancelled jobs, and held ones "
        "fresh or from a step; release takes held ones. Wait until the job has ended, or cancel it first."
    ),
    "JOB_TIMEOUT": (
        "Raise `timeout` on the job type, or split the work into smaller jobs. For a `deadline`: raise it, or "
        "add workers so that the job starts earlier. From `await job.result(timeout=…)`: the job goes on, "
        "`state` says where it is; await it again, or longer."
    ),
    "JOB_UNKNOWN": (
        "Start a worker whose `OUTLAST_JOBS` names the module that declares the job type, and check the "
        "spelling with `GET /v1/job-types`. Where a key or tenant is a callable, enqueue from a process that "
        "loads the module, or declare it as a template."
    ),
    "JSON_INVALID": (
        "Send UTF-8 JSON without `NaN`, `Infinity`, NUL characters, lone surrogates or duplicate keys, at "
        "most 64 levels deep. The message names the place."
    ),
    "LEASE_LOST": (
        "Nothing for the job: it runs again. If it happens often, look for a frozen process or a database "
        "that answers slowly; raise `OUTLAST_LEASE_SECONDS` where pauses are expected."
    ),
    "LIMIT_UNENFORCEABLE": (
        "Limited jobs are sent into the gate by a trigger that does not fire here: it was switched off, by a "
        "restore for example, or the worker's role has another `session_replication_role` than `origin`. The "
        "message has the statement that switches it on again. Nothing of the job types was published; start "
        "the worker again then."
    ),
    "MEDIA_UNSUPPORTED": "Send `Content-Type: application/json` and no `Content-Encoding`.",
    "NOT_FOUND": "Check the path and the name in it against the [HTTP API](http-api.md).",
    "NOT_IMPLEMENTED": (
        "Leave out what the message names, or use what it proposes instead. A `redis://` or `nats://` "
        "address: use `postgresql://`; no job was ever accepted there, so nothing has to be moved."
    ),
    "OUTBOX_NO_TX": (
        "Open a transaction that may write and pass its session, not one in AUTOCOMMIT; roll one back that is "
        'aborted; or leave `session=` and `mode="required"` out to publish at once. See [Enqueue in your '
        "transaction](../how-to/enqueue-in-your-transaction.md)."
    ),
    "PAYLOAD_INVALID": (
        "The problem's `errors` point at the fields. Send what the job type's schema asks for; `GET /v1/job-"
        "types/{name}` shows it."
    ),
    "PAYLOAD_TOO_LARGE": (
        "Store the data elsewhere and send a reference, or raise `OUTLAST_PAYLOAD_MAX_BYTES` on the API and "
        "the workers."
    ),
    "PAYLOAD_UNREADABLE": (
        "Give the process that says so the key the message names: add it to the file of `OUTLAST_PAYLOAD_KEY_FILE`, "
        "below the newest, or set the `OUTLAST_PAYLOAD_CODEC` it was written with, and start it again. Then release "
        "the jobs that are held for it. What was changed in the database comes back from a backup alone. [Encrypt "
        "payloads](../how-to/encrypt-payloads.md)."
    ),
    "PRECONDITION_FAILED": "Read the resource again, decide anew, and send the new `ETag`.",
    "PRECONDITION_REQUIRED": "Read the resource and send its `ETag` as `If-Match`.",
    "QUERY_TOO_SLOW": (
        "Narrow the filter: a shorter time, one queue, one job type, a tag; or ask for a smaller page. Nothing goes on "
        "in the database, so repeating is safe: wait as long as `Retry-After` says, for other reads may have been "
        "before it. If it comes with a narrow filter too, run `outlast doctor`: it names what keeps the database busy."
    ),
    "QUEUES_EMPTY": "Name at least one queue, for example `OUTLAST_QUEUES=default`.",
    "QUEUE_FULL": (
        "Wait as long as `Retry-After` says and send again; add workers if it persists, or raise the maximum: "
        "`outlast queues set NAME --max-depth N`. Rows of the outbox are kept and tried again by themselves."
    ),
    "RATE_LIMITED": "Wait as long as `Retry-After` says, then repeat.",
    "REPLAY_DIVERGED": "Roll the code back, or release, retry afresh or fork the held job.",
    "REQUEST_INVALID": (
        "The problem's `errors` point at the fields. Correct them; fields not in the [HTTP API](http-api.md) "
        "are refused. From code, the message names the option, and the repair a value of its type: "
        "`delay=timedelta(seconds=5)`. As the error of a step it is the end of the job: mend the code, then "
        "retry the job."
    ),
    "RESULT_INVALID": (
        "Return what the annotation says, of JSON types, within `OUTLAST_RESULT_MAX_BYTES`; store larger data "
        "elsewhere and return a reference."
    ),
    "SCHEDULE_INVALID": "Correct the expression or name an IANA zone such as `Europe/Berlin`.",
    "SCHEMA_OUTDATED": "Run `outlast migrate up` on the database, then start again.",
    "SETTINGS_INVALID": (
        "The message names the setting or argument and what it may be; correct it. [Settings](settings.md) lists all."
    ),
    "SLOT_LOST": (
        "Nothing: while you asked for it, its worker, a sweep or somebody else gave the slot back. Look at "
        "the held slots again."
    ),
    "STEP_DUPLICATE": "Give every step of a run its own name; in a loop, put the index or the item's id into it.",
    "STEP_TIMEOUT": (
        "Raise the step's or the wait's timeout, or treat the missing event as a case of its own by leaving "
        "it not required. A job that is dead for want of a required event waits anew when it is retried, and "
        "takes one that has come since."
    ),
    "STEP_TOO_LARGE": "Store the data elsewhere and return a reference to it.",
    "TENANT_FULL": (
        "Wait as long as `Retry-After` says and send again: jobs that were claimed, cancelled or deleted make "
        "room. Add workers if it persists, or raise `OUTLAST_API_WAITING_PER_TENANT`."
    ),
    "TRANSACTION_FOREIGN": (
        "Stage in a transaction on PostgreSQL, in a database with Outlast's tables; or enqueue after the commit."
    ),
    "UNAUTHENTICATED": (
        "Send `Authorization: Bearer` with a key that `outlast keys list` shows to be in force, or with the "
        "one from `OUTLAST_API_KEY_FILE`. [API keys](../operations/api-keys.md)."
    ),
}


def plain_repair(code: str) -> str:
    """Give the repair of a code as plain text."""
    return _LINK.sub(r"\1", REPAIRS[code]).replace("`", "")
