"""Job types as documents: what a worker publishes, and all that other processes know of a job type.

A projection, never configuration: byte for byte the same for the same code. Read back by `jobtype`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Protocol

from ..domain.retry import RetryPolicy
from ..domain.snapshot import JobTypeDoc
from .declared_schema import payload_schema
from .limits import Rate
from .policy import JobPolicy, Rule
from .signature import BodySignature, title


class Declared(Protocol):
    """A declared job type; every handle is one."""

    @property
    def name(self) -> str:
        """Give its name."""
        ...

    @property
    def policy(self) -> JobPolicy:
        """Give its policy."""
        ...

    @property
    def doc(self) -> str:
        """Give the body's docstring."""
        ...

    @property
    def is_sync(self) -> bool:
        """Say whether the body runs in a thread."""
        ...

    @property
    def signature(self) -> BodySignature:
        """Give what the body takes and gives."""
        ...


def describe(handle: Declared, *, code_version: str = "") -> dict[str, object]:
    """Give the JSON projection of a job type: schemas, policy, templates, doc, version.

    Raises:
        SettingsInvalid: its annotations cannot be read, or its payload has no JSON Schema.
    """
    signature = handle.signature
    return {
        "name": handle.name,
        "doc": handle.doc,
        "code_version": code_version,
        "is_sync": handle.is_sync,
        "payload_schema": payload_schema(handle.name, signature.model),
        "result_schema": signature.result.json_schema(by_alias=True, mode="serialization"),
        "policy": _policy(handle.policy),
    }


def describe_jobs(handles: Iterable[Declared], *, code_version: str = "") -> list[dict[str, object]]:
    """Describe every job type, by name in code-point order."""
    return [describe(handle, code_version=code_version) for handle in sorted(handles, key=lambda handle: handle.name)]


def document_text(handle: Declared, *, code_version: str = "") -> str:
    """Give the document as it is published; the same code gives the same bytes."""
    document = describe(handle, code_version=code_version)
    return json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def job_type_docs(handles: Iterable[Declared], *, code_version: str) -> tuple[JobTypeDoc, ...]:
    """Give what a worker publishes, by name in code-point order."""
    return tuple(
        JobTypeDoc(
            name=handle.name,
            code_version=code_version,
            document=document_text(handle, code_version=code_version),
        )
        for handle in sorted(handles, key=lambda handle: handle.name)
    )


def published_retentions(docs: Iterable[JobTypeDoc]) -> dict[str, timedelta]:
    """Give the published job types with a retention of their own; a document of another kind has none."""
    found = {}
    for doc in docs:
        content = json.loads(doc.document)
        policy = content.get("policy") if isinstance(content, dict) else None
        kept = policy.get("retention_ms") if isinstance(policy, dict) else None
        if isinstance(kept, int):
            found[doc.name] = timedelta(milliseconds=kept)
    return found


def milliseconds(duration: timedelta | None) -> int | None:
    """Give a duration in whole milliseconds, as everything outside this process writes it."""
    return None if duration is None else duration // timedelta(milliseconds=1)


def _policy(policy: JobPolicy) -> dict[str, object]:
    return {
        "queue": policy.queue,
        "priority": policy.priority,
        "retry": _retry(policy.retry),
        "timeout_ms": milliseconds(policy.timeout),
        "deadline_ms": milliseconds(policy.deadline),
        "max_queue_time_ms": milliseconds(policy.max_queue_time),
        "tenant": _rule(policy.tenant),
        "idempotency_key": _rule(policy.idempotency_key),
        "on_conflict": policy.on_conflict,
        "dedupe_for_ms": milliseconds(policy.dedupe_for),
        "terminal_on": [f"{kind.__module__}.{kind.__qualname__}" for kind in policy.terminal_on],
        "abort": policy.abort,
        "step_timeout_ms": milliseconds(policy.step_timeout),
        "event_poll_ms": milliseconds(policy.event_poll),
        "retention_ms": milliseconds(policy.retention),
        "redact": list(policy.redact),
        "limits": [{"name": limit.name, "n": limit.n, "key": _rule(limit.key)} for limit in policy.limits],
        "rate": None if policy.rate is None else _rate(policy.rate),
    }


def _rate(rate: Rate) -> dict[str, object]:
    return {"n": rate.n, "per_ms": milliseconds(rate.per), "key": _rule(rate.key)}


def _retry(retry: RetryPolicy) -> dict[str, object]:
    return {
        "max_attempts": retry.max_attempts,
        "backoff_ms": milliseconds(retry.backoff),
        "factor": retry.factor,
        "max_backoff_ms": milliseconds(retry.max_backoff),
        "jitter": retry.jitter,
        "max_crashes": retry.max_crashes,
    }


def _rule(rule: Rule | None) -> dict[str, str] | None:
    if rule is None:
        return None
    return {"template": rule} if isinstance(rule, str) else {"callable": title(rule)}
