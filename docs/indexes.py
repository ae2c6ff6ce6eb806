"""What each index of the schema is for: when an entry is written, and what reads it. Rendered by `docs.generate`.

The bytes of WAL an entry costs are measured by `python -m benchmarks.index_wal`, which writes them into
`docs/reference/index-wal.json`; `tests/architecture/test_index_page.py` holds that every index is spoken of.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Index, PrimaryKeyConstraint, Table, UniqueConstraint

from app.drivers.postgres.tables import DEFAULT_SCHEMA, metadata

FIGURES = Path(__file__).parent / "reference" / "index-wal.json"
EVERY = "every job"


class Purpose(NamedTuple):
    """When an entry is written, and what reads the index."""

    written: str
    read_by: str


_CLAIMED = "claims, settles, everything by id"
PURPOSES: dict[str, Purpose] = {
    # What every job writes.
    "job_pkey": Purpose(EVERY, "everything by id; lists, newest first"),
    "ready_pkey": Purpose(f"{EVERY}, and again when it becomes ready again", "claims, in the order of the queue"),
    "running_pkey": Purpose(f"{EVERY}, at each claim", _CLAIMED),
    "finished_pkey": Purpose(EVERY, "results, retries; lists of ended jobs; the purge"),
    # What only some write.
    "ready_moved": Purpose("jobs that are ready again", "everything by id"),
    "waiting_pkey": Purpose("delayed jobs, retries", "everything by id; lists of delayed jobs"),
    "waiting_due": Purpose("delayed jobs, retries", "promoting what is due; `sort=run_at`"),
    "suspended_pkey": Purpose("suspended runs", "everything by id; lists of suspended jobs"),
    "held_pkey": Purpose("held jobs", "everything by id; lists of held jobs"),
    "held_version": Purpose("jobs held for another code version", "workers of that version"),
    "finished_bad": Purpose("dead and cancelled jobs", "lists of dead and cancelled jobs, dead letters"),
    "finished_bad_at": Purpose("dead and cancelled jobs", "`sort=finished_at`"),
    "job_parent": Purpose("jobs with a parent", "`parent_id`; cancels of children"),
    "job_key": Purpose("jobs with an idempotency key", "`key`"),
    "job_tenant": Purpose("jobs of any tenant but `default`", "`tenant`, and callers of one tenant"),
    "tag_pkey": Purpose("each tag of a job", "`tag`, `tag_all`"),
    "attempt_pkey": Purpose("attempts that did not simply complete", "the ledger of a job"),
    "attempt_error": Purpose("attempts that failed with a code", "`error_code`"),
    "live_key_pkey": Purpose("jobs with an idempotency key", "enqueues with a key"),
    "live_key_ended": Purpose("ended jobs with `dedupe_for`", "the purge of keys"),
    "source_pkey": Purpose("jobs out of an outbox", "the relay, which publishes nothing twice"),
    "source_expires": Purpose("jobs out of an outbox", "the purge of sources"),
    "expiry_pkey": Purpose("jobs with a deadline or `max_queue_time`", "settles and deletes of these"),
    "expiry_at": Purpose("jobs with a deadline or `max_queue_time`", "expiring what is over"),
    "outbox_pkey": Purpose("staged jobs", "the relay"),
    "outbox_staged": Purpose("staged jobs", "the relay, the lag"),
    "outbox_claimed": Purpose("staged jobs on their way", "the relay, for what another one left"),
    "outbox_quarantined": Purpose("refused staged jobs", "`GET /v1/outbox`"),
    "gate_pkey": Purpose("jobs under limits", "everything by id"),
    "gate_open": Purpose("jobs under limits, jobs of fair queues", "admissions, in the order of the queue or of turns"),
    "gate_parked": Purpose("jobs whose limit is full", "admissions, once their key has room"),
    "slot_pkey": Purpose("claims under limits", "admissions, which count a key's slots"),
    "slot_job": Purpose("claims under limits", "the return of slots"),
    "limit_key_pkey": Purpose("keys of limits", "admissions"),
    "limit_key_open": Purpose("keys that jobs are parked at", "admissions"),
    "limit_key_used": Purpose("keys of limits", "forgetting keys that nobody uses"),
    "limit_rule_pkey": Purpose("limits of job types", "admissions"),
    "limit_version_pkey": Purpose("code versions that declare limits", "publications, which choose the newest"),
    "turn_pkey": Purpose("tenants of fair queues", "admissions, which move turns on"),
    "turn_started": Purpose("tenants of fair queues", "admissions, which look how far the queue is"),
    # Webhooks.
    "delivery_pkey": Purpose("ends to be told to a webhook", "their carriers; resends"),
    "delivery_uncarried": Purpose("ends to be told, until they have a carrier", "handing them to carriers"),
    "delivery_webhook": Purpose("ends to be told to a webhook", "lists of deliveries"),
    "delivery_ended": Purpose("ends to be told to a webhook", "their purge"),
    "webhook_pkey": Purpose("webhooks", "everything about one"),
    "webhook_tenant": Purpose("webhooks", "lists of webhooks"),
    # Runs.
    "step_pkey": Purpose("recorded steps", "replays"),
    "wait_pkey": Purpose("sleeps, awaited events and children", "replays, wakes"),
    "wait_due": Purpose("sleeps, waits with a timeout", "waking what is due"),
    "wait_event": Purpose("awaited events", "emits"),
    "wait_child": Purpose("awaited children", "ends of children"),
    "progress_pkey": Purpose("runs that say how far they are", "reading a run"),
    "run_line_pkey": Purpose("lines of runs", "reading a run"),
    "handed_pkey": Purpose("runs handed back to another version", "claims of these"),
    "event_pkey": Purpose("events", "lists of events; waits"),
    "event_id_key": Purpose("events", "repeated emits"),
    "event_key": Purpose("events", "waits that begin; lists of events"),
    "event_since": Purpose("events", "waits that begin"),
    # What jobs do not write.
    "flow_pkey": Purpose("counts of attempts, by workers every 15 seconds", "`GET /v1/stats`"),
    "worker_pkey": Purpose("workers", "heartbeats, every fence"),
    "worker_boot_id_key": Purpose("workers", "repeated registrations"),
    "drain_pkey": Purpose("drains of workers", "reports of deploys"),
    "job_name_pkey": Purpose("new job types", "everything that shows a job"),
    "job_name_name_key": Purpose("new job types", "enqueues"),
    "job_type_pkey": Purpose("publications", "the catalogue of job types"),
    "queue_pkey": Purpose("queues with a setting", "claims, enqueues"),
    "queue_asked": Purpose("queues with a maximum depth, fair queues", "enqueues, which find none as a rule"),
    "schedule_pkey": Purpose("schedules", "schedulers"),
    "declaration_pkey": Purpose("declared schedules", "schedulers"),
    "occurrence_pkey": Purpose("occurrences of schedules", "schedulers, which fire nothing twice"),
    "occurrence_decided": Purpose("occurrences of schedules", "their purge"),
    "purge_mark_pkey": Purpose("nothing", "the purge"),
    "audit_pkey": Purpose("operators' actions", "the audit"),
    "audit_id_key": Purpose("operators' actions", "repeated actions"),
    "audit_target": Purpose("operators' actions", "the audit of a job or a queue"),
    "audit_actor": Purpose("operators' actions", "the audit of a key"),
    "bulk_pkey": Purpose("bulk operations", "their pages"),
    "bulk_running": Purpose("bulk operations that run", "workers, which do them"),
    "bulk_ended": Purpose("bulk operations that are over", "their purge"),
    "bulk_item_pkey": Purpose("jobs of a bulk operation", "its work"),
    "bulk_item_left": Purpose("jobs of a bulk operation", "its work"),
    "bulk_item_undone": Purpose("jobs that an operation left", "its list of these"),
    "api_key_pkey": Purpose("API keys", "every request"),
    "request_pkey": Purpose("requests with an `Idempotency-Key`", "the same request again"),
    "request_created": Purpose("requests with an `Idempotency-Key`", "their purge"),
    "moving_pkey": Purpose("what is on its way to another database", "their closing"),
    "moving_job_id_key": Purpose("what is on its way to another database", "none twice"),
    "moving_target": Purpose("what is on its way to another database", "what is left for a target, in order"),
    "ended_session_pkey": Purpose("sessions of the dashboard that were ended", "none twice"),
}


def indexes() -> dict[str, tuple[str, str]]:
    """Give the table and the columns of every index of the schema, by its name."""
    found: dict[str, tuple[str, str]] = {}
    for table in metadata(DEFAULT_SCHEMA).sorted_tables:
        for constraint in table.constraints:
            columns = ", ".join(column.name for column in getattr(constraint, "columns", ()))
            if isinstance(constraint, PrimaryKeyConstraint):
                found[f"{table.name}_pkey"] = table.name, columns
            elif isinstance(constraint, UniqueConstraint):
                found[f"{table.name}_{columns}_key"] = table.name, columns
        found.update({str(index.name): (table.name, _columns(table, index)) for index in table.indexes})
    return found


def table() -> str:
    """Give the rows of the page: those that every job writes, then by table."""
    figures = json.loads(FIGURES.read_text())
    rows = ["| index | on | bytes of WAL | written for | read by |", "|---|---|---:|---|---|"]
    places = indexes()
    for name in sorted(places, key=lambda name: (not PURPOSES[name].written.startswith(EVERY), name)):
        on, columns = places[name]
        written, read_by = PURPOSES[name]
        rows.append(f"| `{name}` | `{on}({columns})` | {figures.get(name, '')} | {written} | {read_by} |")
    return "\n".join(rows) + "\n"


def _columns(_table: Table, index: Index) -> str:
    return ", ".join(column.name for column in index.columns)
