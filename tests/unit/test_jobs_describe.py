"""Job types as documents, and what other processes make of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from app.domain.errors import JobUnknown, PayloadInvalid, SettingsInvalid
from app.domain.snapshot import JobTypeDoc
from app.jobs import Registry, RetryPolicy, describe, describe_jobs, job
from app.jobs.describe import document_text, job_type_docs
from app.jobs.jobtype import CallableRule, JobType, JobTypes
from app.jobs.template import Template


class Part(BaseModel):
    number: int
    due: datetime | None = None


class Order(BaseModel):
    order_id: int
    shop: str = "main"
    parts: list[Part] = []
    ref: UUID | None = None
    day: date | None = None


def key_of(payload: Order) -> str:
    return f"order:{payload.order_id}"


@job(
    "orders.ship",
    queue="mail",
    priority=3,
    retry=RetryPolicy(max_attempts=4, max_crashes=2),
    timeout=timedelta(seconds=90),
    deadline=timedelta(hours=2),
    max_queue_time=timedelta(hours=1),
    tenant="{shop}",
    idempotency_key=key_of,
    on_conflict="error",
    dedupe_for=timedelta(days=1),
    terminal_on=[KeyError],
    abort="signal",
)
async def ship(payload: Order) -> Part:
    """Ship an order."""
    return Part(number=payload.order_id)


@job("orders.count")
def count(number: int = 3) -> None: ...


def test_a_document_holds_schemas_policy_rules_doc_and_version() -> None:
    document = describe(ship, code_version="v7")
    assert document["name"] == "orders.ship"
    assert document["doc"] == "Ship an order."
    assert document["code_version"] == "v7"
    assert document["is_sync"] is False
    assert document["policy"] == {
        "queue": "mail",
        "priority": 3,
        "retry": {
            "max_attempts": 4,
            "backoff_ms": 1000,
            "factor": 2.0,
            "max_backoff_ms": 3_600_000,
            "jitter": "full",
            "max_crashes": 2,
        },
        "timeout_ms": 90_000,
        "deadline_ms": 7_200_000,
        "max_queue_time_ms": 3_600_000,
        "tenant": {"template": "{shop}"},
        "idempotency_key": {"callable": "tests.unit.test_jobs_describe.key_of"},
        "on_conflict": "error",
        "dedupe_for_ms": 86_400_000,
        "terminal_on": ["builtins.KeyError"],
        "abort": "signal",
        "step_timeout_ms": None,
        "event_poll_ms": None,
        "retention_ms": None,
        "limits": [],
        "rate": None,
        "redact": [],
    }
    assert json.loads(document_text(ship, code_version="v7")) == document


def test_documents_come_in_code_point_order_and_byte_for_byte_the_same() -> None:
    registry = Registry([ship, count])
    assert [document["name"] for document in describe_jobs(registry)] == ["orders.count", "orders.ship"]
    docs = job_type_docs(registry, code_version="v7")
    assert docs == job_type_docs(Registry([count, ship]), code_version="v7")
    assert [(doc.name, doc.code_version) for doc in docs] == [("orders.count", "v7"), ("orders.ship", "v7")]


def test_a_published_type_reads_as_the_declared_one_but_for_its_code() -> None:
    declared, published = JobType.of_handle(ship), JobType.parse(document_text(ship))
    for field in ("name", "queue", "priority", "max_attempts", "max_crashes", "timeout", "deadline", "dedupe_for"):
        assert getattr(published, field) == getattr(declared, field)
    assert isinstance(published.tenant_rule, Template)
    assert published.key_rule == CallableRule(name="tests.unit.test_jobs_describe.key_of")
    assert isinstance(declared.key_rule, CallableRule)
    assert declared.evaluate(declared.key_rule, '{"order_id": 4}', {"order_id": 4}, "key") == "order:4"
    with pytest.raises(JobUnknown, match="key_of") as caught:
        published.evaluate(published.key_rule, "{}", {}, "idempotency key")
    assert "template" in caught.value.fix


FITTING: list[dict[str, Any]] = [
    {"order_id": 1},
    {"order_id": 2**70, "shop": "é", "parts": [{"number": 1, "due": "2026-01-02T03:04:05Z"}]},
    {"order_id": 1, "ref": "01900000-0000-7000-8000-000000000001", "day": "2026-01-02", "unknown": {"x": [1]}},
    {"order_id": 1, "ref": None, "parts": []},
]
UNFITTING: list[tuple[Any, str]] = [
    ({}, ""),
    ({"order_id": "secret"}, "/order_id"),
    ({"order_id": 1.5}, "/order_id"),
    ({"order_id": 1, "parts": [{"number": None}]}, "/parts/0/number"),
    ({"order_id": 1, "shop": None}, "/shop"),
    ([], ""),
    (3, ""),
]


@pytest.mark.parametrize("make", [JobType.of_handle, lambda handle: JobType.parse(document_text(handle))])
@pytest.mark.parametrize("payload", FITTING)
def test_a_fitting_payload_passes_with_the_code_and_without(
    make: Callable[[object], JobType], payload: dict[str, Any]
) -> None:
    make(ship).check_payload(json.dumps(payload), payload)


@pytest.mark.parametrize("make", [JobType.of_handle, lambda handle: JobType.parse(document_text(handle))])
@pytest.mark.parametrize(("payload", "pointer"), UNFITTING)
def test_an_unfitting_payload_is_refused_with_the_code_and_without(
    make: Callable[[object], JobType], payload: object, pointer: str
) -> None:
    with pytest.raises(PayloadInvalid) as caught:
        make(ship).check_payload(json.dumps(payload), payload)
    errors = caught.value.details["errors"]
    assert isinstance(errors, list)
    assert str(errors[0]["pointer"]).startswith(pointer)
    assert "secret" not in json.dumps(errors) + str(caught.value)


@pytest.mark.parametrize("wrong", [{"ref": "x"}, {"day": "tomorrow"}, {"parts": [{"number": 1, "due": "x"}]}])
def test_formats_that_a_worker_would_refuse_are_refused_before_it(wrong: dict[str, Any]) -> None:
    with pytest.raises(PayloadInvalid):
        JobType.parse(document_text(ship)).check_payload("", {"order_id": 1, **wrong})


def test_errors_are_many_but_bounded() -> None:
    payload = {"order_id": 1, "parts": [{}] * 1000}
    for job_type in (JobType.of_handle(ship), JobType.parse(document_text(ship))):
        with pytest.raises(PayloadInvalid) as caught:
            job_type.check_payload(json.dumps(payload), payload)
        errors = caught.value.details["errors"]
        assert isinstance(errors, list)
        assert len(errors) == 20


def test_unknown_parameters_are_refused_with_the_code_and_without() -> None:
    for job_type in (JobType.of_handle(count), JobType.parse(document_text(count))):
        job_type.check_payload("{}", {})
        with pytest.raises(PayloadInvalid):
            job_type.check_payload('{"x": 1}', {"x": 1})


@pytest.mark.parametrize("document", ["", "[]", "{}", '{"name": "a", "policy": {}}', '{"name": "a", "policy": null}'])
def test_a_document_that_cannot_be_read_is_refused(document: str) -> None:
    with pytest.raises(SettingsInvalid):
        JobType.parse(document)


def test_a_schema_that_is_none_is_refused_when_used() -> None:
    document = describe(count)
    document["payload_schema"] = {"type": "nonsense"}
    with pytest.raises(SettingsInvalid, match=r"orders\.count"):
        JobType.parse(json.dumps(document)).check_payload("{}", {})


def test_published_types_are_parsed_once_per_document() -> None:
    types = JobTypes()
    doc = JobTypeDoc(
        name="orders.ship",
        code_version="1",
        document=document_text(ship),
        published_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    same = JobTypeDoc(name="orders.ship", code_version="2", document=document_text(ship))
    newer = JobTypeDoc(name="orders.ship", code_version="2", document=document_text(ship, code_version="2"))
    assert types.of(doc) is types.of(same)
    assert types.of(newer) is not types.of(doc)
