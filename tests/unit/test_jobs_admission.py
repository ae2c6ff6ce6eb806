"""The one way in: what becomes of a request, and which requests become nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from app.domain.errors import (
    Forbidden,
    JobUnknown,
    JsonInvalid,
    PayloadInvalid,
    PayloadTooLarge,
    RequestInvalid,
)
from app.domain.job import JobId, NewJob
from app.domain.json_text import fingerprint
from app.domain.text import is_traceparent
from app.jobs import RetryPolicy, job
from app.jobs.admission import Admission, EnqueueRequest
from app.jobs.describe import document_text
from app.jobs.jobtype import JobType
from tests.unit.jobs_fakes import JOB_ID, NOW

SECOND = timedelta(seconds=1)
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@job("orders.plain", timeout=timedelta(seconds=60), retry=RetryPolicy(max_attempts=5, max_crashes=2))
def plain(order_id: int, shop: str = "main") -> None: ...


@job(
    "orders.keyed",
    queue="mail",
    priority=2,
    idempotency_key="order:{order_id}",
    tenant="{shop}",
    on_conflict="error",
    dedupe_for=timedelta(hours=1),
    deadline=timedelta(hours=3),
    max_queue_time=timedelta(hours=2),
)
def keyed(order_id: int, shop: str = "main") -> None: ...


@job("orders.called", idempotency_key=lambda payload: f"k{payload.field_0}", tenant=lambda payload: payload.field_1)
def called(order_id: int, shop: str = "main") -> None: ...


@job("orders.raising", tenant=lambda payload: {"there": "north"}["absent"])
def raising(order_id: int) -> None: ...


@job("orders.broken", idempotency_key=lambda payload: payload.field_0)
def broken(order_id: int) -> None: ...


PLAIN, KEYED, CALLED = (JobType.parse(document_text(handle)) for handle in (plain, keyed, called))
BY = Admission(new_id=lambda: JOB_ID, now=lambda: NOW)


def _request(job_type: JobType = PLAIN, payload: str = '{"order_id": 12}', **fields: Any) -> EnqueueRequest:
    return EnqueueRequest(name=job_type.name, payload_text=payload, **fields)


def test_a_bare_request_takes_the_job_types_values() -> None:
    payload = ' { "order_id" : 12 } '
    assert BY.admit(PLAIN, _request(payload=payload)) == NewJob(
        id=JOB_ID, name="orders.plain", payload=payload, max_attempts=5, max_crashes=2
    )


def test_declared_keys_tenants_and_times_are_stored_with_the_job() -> None:
    assert BY.admit(KEYED, _request(KEYED)) == NewJob(
        id=JOB_ID,
        name="orders.keyed",
        payload='{"order_id": 12}',
        queue="mail",
        priority=2,
        tenant="main",
        key="order:12",
        fingerprint=fingerprint({"order_id": 12}),
        on_conflict="error",
        dedupe_for=timedelta(hours=1),
        deadline=timedelta(hours=3),
        max_queue_time=timedelta(hours=2),
    )


def test_a_full_request_is_carried_over() -> None:
    fields: dict[str, Any] = {
        "queue": "other",
        "priority": 0,
        "run_at": NOW + SECOND,
        "max_attempts": 5,
        "timeout": timedelta(seconds=60),
        "idempotency_key": "mine",
        "on_conflict": "error",
        "dedupe_for": SECOND,
        "tags": ("a", "b"),
        "meta": '{"a": 1, "b": null}',
        "parent_id": JobId(UUID(int=1)),
        "traceparent": TRACEPARENT,
        "enqueued_by": "me",
        "tenant": "acme",
    }
    admitted = BY.admit(PLAIN, _request(**fields))
    assert {field: getattr(admitted, field) for field in fields if field != "idempotency_key"} == {
        field: value for field, value in fields.items() if field != "idempotency_key"
    }
    assert admitted.key == "mine"


def test_a_requests_key_wins_and_spares_the_declared_one() -> None:
    assert BY.admit(KEYED, _request(KEYED, idempotency_key="mine")).key == "mine"
    local = JobType.of_handle(called)
    assert BY.admit(local, _request(local, idempotency_key="mine")).key == "mine"


def test_callables_are_evaluated_where_their_code_is_and_nowhere_else() -> None:
    local = JobType.of_handle(called)
    admitted = BY.admit(local, _request(local))
    assert (admitted.key, admitted.tenant) == ("k12", "main")
    with pytest.raises(JobUnknown):
        BY.admit(CALLED, _request(CALLED))


def test_a_callable_that_makes_no_text_is_refused() -> None:
    local = JobType.of_handle(broken)
    with pytest.raises(PayloadInvalid, match="int"):
        BY.admit(local, _request(local))


def test_a_callable_that_raises_refuses_the_enqueue_and_keeps_its_error_as_the_cause() -> None:
    local = JobType.of_handle(raising)
    with pytest.raises(PayloadInvalid, match="KeyError") as refused:
        BY.admit(local, _request(local))
    assert isinstance(refused.value.__cause__, KeyError)


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue": "No"},
        {"queue": "a" * 129},
        {"priority": 10},
        {"priority": -1},
        {"priority": True},
        {"delay": -SECOND},
        {"delay": timedelta(days=4000)},
        {"run_at": NOW, "delay": SECOND},
        {"run_at": datetime(2026, 1, 2)},  # noqa: DTZ001 # naive on purpose
        {"run_at": NOW - timedelta(days=1, seconds=1)},
        {"run_at": datetime.max.replace(tzinfo=UTC)},
        {"run_at": datetime.min.replace(tzinfo=UTC)},
        {"max_attempts": 0},
        {"max_attempts": 6},
        {"max_attempts": True},
        {"timeout": timedelta()},
        {"timeout": timedelta(seconds=61)},
        {"idempotency_key": ""},
        {"idempotency_key": " "},
        {"idempotency_key": "x" * 256},
        {"idempotency_key": "a\0"},
        {"on_conflict": "ignore", "idempotency_key": "a"},
        {"dedupe_for": timedelta(), "idempotency_key": "a"},
        {"dedupe_for": SECOND},
        {"tags": ("a",) * 21},
        {"tags": ("a" * 65,)},
        {"tags": ("",)},
        {"tags": ("\ud800",)},
        {"meta": "[]"},
        {"meta": '{"a": {}}'},
        {"meta": '{"a": []}'},
        {"meta": '{"a": NaN}'},
        {"meta": '{"a": "' + "x" * 4096 + '"}'},
        {"meta": "nothing"},
        {"parent_id": "not an id"},
        {"traceparent": "00-x"},
        {"traceparent": TRACEPARENT + "\n"},
        {"enqueued_by": "a\nb"},
        {"tenant": ""},
    ],
)
def test_fields_out_of_bounds_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestInvalid) as caught:
        BY.admit(PLAIN, _request(**wrong))
    assert str(caught.value.details["pointer"]).removeprefix("/") in wrong
    str(caught.value).encode()


@pytest.mark.parametrize(
    "right",
    [
        {"run_at": NOW - timedelta(days=1)},
        {"run_at": NOW + timedelta(days=5 * 365)},
        {"delay": timedelta()},
        {"delay": timedelta(days=365)},
        {"max_attempts": 1},
        {"timeout": timedelta(milliseconds=1)},
        {"idempotency_key": "x" * 255},
        {"tags": ("a" * 64,) * 20},
        {"meta": "{}"},
        {"meta": '{"a": true, "b": 1.5, "c": "d", "e": null}'},
    ],
)
def test_fields_at_their_bounds_pass(right: dict[str, Any]) -> None:
    BY.admit(PLAIN, _request(**right))


def test_no_delay_is_no_delay() -> None:
    assert BY.admit(PLAIN, _request(delay=timedelta())).delay is None


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ("", JsonInvalid),
        ('{"order_id": NaN}', JsonInvalid),
        ('{"order_id": 1, "order_id": 1}', JsonInvalid),
        ('{"order_id": 1, "shop": "\\u0000"}', JsonInvalid),
        ('{"order_id": 1, "shop": "' + "x" * 2**18 + '"}', PayloadTooLarge),
        ("null", PayloadInvalid),
        ("{}", PayloadInvalid),
        ('{"order_id": "1"}', PayloadInvalid),
    ],
)
def test_payloads_that_cannot_be_kept_or_do_not_fit_are_refused(payload: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        BY.admit(PLAIN, _request(payload=payload))


@pytest.mark.parametrize("shop", ["", " ", "a\\nb", "x" * 256])
def test_a_tenant_that_cannot_be_used_is_refused(shop: str) -> None:
    with pytest.raises(PayloadInvalid):
        BY.admit(KEYED, _request(KEYED, f'{{"order_id": 1, "shop": "{shop}"}}'))


def test_a_key_made_of_a_payload_obeys_the_rules_of_keys() -> None:
    with pytest.raises(PayloadInvalid, match="key"):
        BY.admit(KEYED, _request(KEYED, '{"order_id": ' + "9" * 300 + "}"))


def test_a_callers_tenant_and_the_payloads_agree_or_nothing_is_stored() -> None:
    assert BY.admit(KEYED, _request(KEYED, tenant="main")).tenant == "main"
    with pytest.raises(Forbidden):
        BY.admit(KEYED, _request(KEYED, tenant="other"))


def test_a_request_for_another_type_is_refused() -> None:
    with pytest.raises(JobUnknown):
        BY.admit(PLAIN, replace(_request(), name="orders.other"))


def test_ids_are_new_version_7_and_ordered() -> None:
    ids = [Admission().admit(PLAIN, _request()).id for _ in range(100)]
    assert len(set(ids)) == 100
    assert {each.version for each in ids} == {7}
    assert all(isinstance(each, UUID) for each in ids)
    assert sorted(ids) == ids


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        "ff" + TRACEPARENT[2:],
        TRACEPARENT.upper(),
        TRACEPARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
    ],
)
def test_what_is_no_traceparent(text: str) -> None:
    assert not is_traceparent(text)
    assert is_traceparent(TRACEPARENT)
