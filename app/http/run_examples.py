"""Examples of runs and events for the OpenAPI document; data only."""

from __future__ import annotations

from typing import Any

from .documents import JOB_ID

_CHILD = "0198c0f4-7c1a-7b3e-9a55-3f0a1c2d4e60"
EVENT_ID = "0198c0f4-7c1a-7b3e-9a55-3f0a1c2d4e61"

STEP: dict[str, Any] = {
    "seq": 4711,
    "name": "load",
    "kind": "run",
    "branch": "",
    "number": 0,
    "claim_no": 1,
    "code_version": "1.4.2",
    "started_at": "2026-11-29T12:00:00.100000Z",
    "ended_at": "2026-11-29T12:00:00.350000Z",
    "duration_ms": 250,
    "timed_out": False,
    "child_id": None,
    "value": {"order_id": 7},
}
WAIT: dict[str, Any] = {
    "name": "approval",
    "kind": "event",
    "branch": "",
    "number": 1,
    "code_version": "1.4.2",
    "since": "2026-11-29T12:00:00.350000Z",
    "until": "2026-12-02T12:00:00.350000Z",
    "event": "order.approved",
    "key": "7",
    "child_id": None,
    "child_state": None,
    "has_failed": False,
    "error": None,
}
STEPS = {"items": [STEP], "waits": [WAIT], "children": [_CHILD], "next_cursor": None}

PROGRESS = {"value": 0.4, "message": "2 of 5 pages", "at": "2026-11-29T12:00:00.300000Z"}
LINE = {"seq": 4712, "at": "2026-11-29T12:00:00.300000Z", "claim_no": 1, "message": "loaded order 7"}
LINES = {"items": [LINE], "progress": PROGRESS, "next_cursor": None}

_SPAN: dict[str, Any] = {
    "kind": "queue",
    "name": "queue",
    "started_at": "2026-11-29T12:00:00Z",
    "ended_at": "2026-11-29T12:00:00.100000Z",
    "duration_ms": 100,
    "claim_no": 1,
    "replayed": False,
    "inferred": False,
    "outcome": None,
    "cause": None,
    "counted": None,
    "worker_id": None,
    "host": None,
    "code_version": None,
    "reached": None,
    "error": None,
    "step_kind": None,
    "branch": None,
    "until": None,
    "event": None,
    "key": None,
    "child_id": None,
    "has_failed": False,
}
_RUN = {"code_version": "1.4.2", "branch": ""}
TIMELINE = {
    "id": JOB_ID,
    "state": "suspended",
    "spans": [
        _SPAN,
        _SPAN
        | _RUN
        | {
            "kind": "attempt",
            "name": "attempt 1",
            "started_at": STEP["started_at"],
            "ended_at": STEP["ended_at"],
            "duration_ms": 250,
            "inferred": True,
            "outcome": "suspended",
            "counted": False,
            "branch": None,
        },
        _SPAN
        | _RUN
        | {
            "kind": "step",
            "name": "load",
            "started_at": STEP["started_at"],
            "ended_at": STEP["ended_at"],
            "duration_ms": 250,
            "step_kind": "run",
        },
        _SPAN
        | _RUN
        | {
            "kind": "wait",
            "name": "approval",
            "started_at": WAIT["since"],
            "ended_at": None,
            "duration_ms": None,
            "claim_no": None,
            "step_kind": "event",
            "until": WAIT["until"],
            "event": "order.approved",
            "key": "7",
        },
    ],
    "is_cut": False,
}

EVENT = {
    "id": EVENT_ID,
    "name": "order.approved",
    "key": "7",
    "tenant": "default",
    "emitted_at": "2026-11-29T12:30:00Z",
    "emitted_by": "bootstrap",
    "matched": 1,
    "payload": {"by": "anna"},
}
EVENTS = {"items": [EVENT], "next_cursor": None}

STREAM = (
    "retry: 2000\n\n"
    "id: 1\nevent: state\n"
    f'data: {{"id":"{JOB_ID}","state":"running","claim_no":1}}\n\n'
    "id: 4711000000000001000000\nevent: step\n"
    'data: {"seq":4711,"name":"load","kind":"run","claim_no":1}\n\n'
    "id: 4711000001000001000003\nevent: end\n"
    f'data: {{"id":"{JOB_ID}","state":"done"}}\n\n'
)
