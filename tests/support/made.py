"""Jobs, workers and tokens made for a test: every field has a plausible value until the test names another."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import uuid_utils

from app.domain.flow import FlowBatch, FlowPart
from app.domain.job import ClaimToken, JobId, NewJob
from app.domain.outcome import ErrorInfo
from app.domain.snapshot import NewWorker

LEASE = timedelta(seconds=30)
NAME = "demo.job"
QUEUE = "default"

ERROR = ErrorInfo(type="ValueError", message="no such order", code="ORDER_UNKNOWN", traceback="Traceback …")


def new_id() -> JobId:
    """Give a fresh UUIDv7; ids made one after the other in a process sort in that order."""
    return JobId(UUID(bytes=uuid_utils.uuid7().bytes))


def new_job(name: str = NAME, **fields: Any) -> NewJob:
    """Give a job ready to be enqueued; any field of `NewJob` can be named."""
    fields.setdefault("id", new_id())
    fields.setdefault("payload", "{}")
    return NewJob(name=name, **fields)


def new_worker(**fields: Any) -> NewWorker:
    """Give a worker ready to be registered, with a lease of 30 s."""
    defaults: dict[str, Any] = {
        "host": "host-a",
        "pid": 4711,
        "code_version": "1.0.0",
        "queues": (QUEUE,),
        "concurrency": 10,
        "lease_ms": int(LEASE.total_seconds() * 1000),
        "boot_id": uuid4(),
    }
    return NewWorker(**{**defaults, **fields})


def with_token(token: ClaimToken, **fields: Any) -> ClaimToken:
    """Give a token that differs in the named components."""
    return token._replace(**fields)


def flow_of(*parts: FlowPart) -> FlowBatch:
    """Give figures as one process adds them, in a batch of its own."""
    return FlowBatch(new_id(), parts)
