"""Enqueueing from code: the current client, options, and what is refused instead of dropped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from app.domain.errors import (
    DriverUnavailable,
    OutboxNoTx,
    OutlastError,
    PayloadInvalid,
    RequestInvalid,
)
from app.domain.job import NewJob
from app.domain.outbox import OutboxId
from app.jobs import Client, StagedJob, client, job, use_client
from app.jobs.admission import Admission
from app.jobs.context import JobContext
from tests.unit.jobs_fakes import JOB_ID, NOW, RememberingStore, context


class Order(BaseModel):
    order_id: int
    price: float = 1.0
    extra: Any = None
    total: Decimal = Decimal("1.50")
    wire: str = Field("x", alias="wireName")


class Special(Order):
    note: str = ""


@job("orders.ship", idempotency_key="order:{order_id}", tenant="{wireName}")
async def ship(ctx: JobContext, payload: Order) -> None: ...


@job("orders.count")
def count(number: int, label: str = "x") -> None: ...


@pytest.fixture
def store() -> Iterator[RememberingStore]:
    store = RememberingStore()
    with use_client(Client(store.driver, admission=Admission(now=lambda: NOW), enqueued_by="tests")):
        yield store


async def test_a_model_is_enqueued_as_the_json_its_model_reads(store: RememberingStore) -> None:
    answer = await ship.enqueue(Order(order_id=2**70, price=1.5e300, wireName="é"))
    [stored] = store.jobs
    assert answer.id == stored.id
    assert json.loads(stored.payload) == {
        "order_id": 2**70,
        "price": 1.5e300,
        "extra": None,
        "total": "1.50",
        "wireName": "é",
    }
    assert (stored.name, stored.key, stored.tenant, stored.enqueued_by) == (
        "orders.ship",
        f"order:{2**70}",
        "é",
        "tests",
    )
    Order.model_validate_json(stored.payload)


async def test_a_mapping_is_enqueued_as_it_is(store: RememberingStore) -> None:
    await count.enqueue({"number": 3})
    assert store.jobs[0].payload == '{"number":3}'


async def test_options_become_fields_of_the_job(store: RememberingStore) -> None:
    await count.enqueue(
        {"number": 3},
        delay=timedelta(seconds=5),
        queue="mail",
        priority=1,
        max_attempts=2,
        timeout=timedelta(seconds=3),
        idempotency_key="k",
        on_conflict="error",
        dedupe_for=timedelta(days=1),
        tags=["a"],
        meta={"a": 1, "b": "é"},
        enqueued_by="me",
        tenant="acme",
        mode="auto",
        session=None,
    )
    [stored] = store.jobs
    assert (stored.delay, stored.queue, stored.priority, stored.max_attempts) == (timedelta(seconds=5), "mail", 1, 2)
    assert (stored.key, stored.on_conflict, stored.dedupe_for) == ("k", "error", timedelta(days=1))
    assert (stored.tags, stored.meta, stored.enqueued_by, stored.tenant) == (("a",), '{"a":1,"b":"é"}', "me", "acme")


@pytest.mark.parametrize(
    "payload",
    [
        Order(order_id=1, price=float("nan")),
        Order(order_id=1, extra=float("inf")),
        Order(order_id=1, extra=object()),
        Order(order_id=1, extra="\ud800"),
        Order(order_id=1, extra="a\0"),
        Order(order_id=1, extra={1: 2, "1": 3}),
        Order.model_construct(order_id="x"),  # type: ignore[arg-type] # what the test shows
        {"order_id": "x"},
        {},
        3,
        None,
        "text",
    ],
)
async def test_payloads_without_a_faithful_json_form_are_refused(store: RememberingStore, payload: Any) -> None:
    with pytest.raises(OutlastError) as caught:
        await ship.enqueue(payload)
    assert caught.value.code in {"PAYLOAD_INVALID", "JSON_INVALID"}
    assert store.jobs == []


async def test_a_submodel_keeps_its_own_fields(store: RememberingStore) -> None:
    await ship.enqueue(Special(order_id=1, note="mine"))
    assert json.loads(store.jobs[0].payload)["note"] == "mine"


async def test_many_jobs_go_in_one_batch_and_in_order(store: RememberingStore) -> None:
    answers = await count.enqueue_many([{"number": number} for number in range(1200)], tags=["bulk"])
    assert store.batches == 1
    assert [json.loads(stored.payload)["number"] for stored in store.jobs] == list(range(1200))
    assert [answer.id for answer in answers] == [stored.id for stored in store.jobs]
    assert await count.enqueue_many([]) == ()
    assert store.batches == 1


async def test_one_refused_job_refuses_the_batch(store: RememberingStore) -> None:
    with pytest.raises(PayloadInvalid):
        await count.enqueue_many([{"number": 1}, {"number": "x"}])
    assert store.jobs == []


async def test_too_many_jobs_are_refused(store: RememberingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.MOST_AT_ONCE == 50_000
    monkeypatch.setattr(client, "MOST_AT_ONCE", 3)
    assert len(await count.enqueue_many([{"number": 1}] * 3)) == 3
    with pytest.raises(RequestInvalid, match="more than 3"):
        await count.enqueue_many([{"number": 1}] * 4)
    assert len(store.jobs) == 3


async def test_without_a_client_the_await_raises_with_the_repair() -> None:
    pending = count.enqueue({"number": 1})
    with pytest.raises(DriverUnavailable, match="no client") as caught:
        await pending
    assert "use_client" in caught.value.fix
    with pytest.raises(DriverUnavailable):
        await count.enqueue_many([{"number": 1}])


async def test_clients_nest_and_follow_tasks() -> None:
    outer, inner = RememberingStore(), RememberingStore()
    with use_client(Client(outer.driver)):
        with use_client(Client(inner.driver)):
            await asyncio.create_task(count.enqueue({"number": 1}))
        await count.enqueue({"number": 2})
    assert [len(outer.jobs), len(inner.jobs)] == [1, 1]
    with pytest.raises(DriverUnavailable):
        await count.enqueue({"number": 3})


class RememberingStager:
    """Remembers what was staged in which session."""

    def __init__(self) -> None:
        self.staged: list[tuple[object, list[NewJob]]] = []

    async def stage(self, transaction: object, jobs: Sequence[NewJob]) -> None:
        self.stage_now(transaction, jobs)

    def stage_now(self, transaction: object, jobs: Sequence[NewJob]) -> None:
        self.staged.append((transaction, list(jobs)))


async def test_with_a_session_jobs_are_staged_in_it_and_not_published(store: RememberingStore) -> None:
    stager, session = RememberingStager(), object()
    with use_client(Client(store.driver, stager=stager, enqueued_by="shop")):
        one = await count.enqueue({"number": 1}, session=session, idempotency_key="k", delay=timedelta(seconds=5))
        two, three = await count.enqueue_many([{"number": 2}, {"number": 3}], session=session, tags=["bulk"])
        four = count.stage({"number": 4}, session=session)
        assert await count.enqueue_many([], session=session) == ()
    assert store.jobs == []
    jobs = [job for _, staged in stager.staged for job in staged]
    assert {given for given, _ in stager.staged} == {session}
    assert [job.payload for job in jobs] == [f'{{"number":{number}}}' for number in range(1, 5)]
    assert [StagedJob(outbox_id=OutboxId(job.id), id=job.id) for job in jobs] == [one, two, three, four]
    assert (jobs[0].key, jobs[0].delay, jobs[0].enqueued_by) == ("k", timedelta(seconds=5), "shop")


async def test_the_current_session_is_staged_in_while_there_is_one(store: RememberingStore) -> None:
    stager, sessions = RememberingStager(), list[object]()
    with use_client(Client(store.driver, stager=stager), current_session=lambda: sessions[-1] if sessions else None):
        await count.enqueue({"number": 1})
        assert len(store.jobs) == 1
        with pytest.raises(OutboxNoTx, match="none"):
            await count.enqueue({"number": 2}, mode="required")
        with pytest.raises(OutboxNoTx, match="none"):
            count.stage({"number": 2})
        sessions.append("ours")
        await count.enqueue({"number": 3})
        await count.enqueue({"number": 4}, mode="required")
        await count.enqueue({"number": 5}, session="another")
        count.stage({"number": 6})
    assert len(store.jobs) == 1
    assert [session for session, _ in stager.staged] == ["ours", "ours", "another", "ours"]


async def test_a_transaction_is_never_replaced_by_publishing_at_once(store: RememberingStore) -> None:
    with pytest.raises(OutboxNoTx, match="no outbox"):
        await count.enqueue({"number": 1}, session=object())
    with pytest.raises(OutboxNoTx, match="no outbox"):
        count.stage({"number": 1}, session=object())
    with pytest.raises(OutboxNoTx, match="none"):
        await count.enqueue({"number": 1}, mode="required")
    assert store.jobs == []


async def test_what_is_refused_is_not_staged(store: RememberingStore) -> None:
    stager = RememberingStager()
    with use_client(Client(store.driver, stager=stager)):
        with pytest.raises(PayloadInvalid):
            await count.enqueue({"number": "x"}, session=object())
        with pytest.raises(PayloadInvalid):
            await count.enqueue_many([{"number": 1}, {"number": "x"}], session=object())
    assert stager.staged == []


async def test_the_session_of_a_client_around_a_body_is_not_the_bodys(store: RememberingStore) -> None:
    stager = RememberingStager()
    with use_client(Client(store.driver, stager=stager), current_session=lambda: "outer"):
        client.be_current(Client(store.driver, stager=stager))
        await count.enqueue({"number": 1})
    assert (len(store.jobs), stager.staged) == (1, [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"meta": {"a": object()}},
        {"meta": {"a": float("nan")}},
        {"meta": {"a": {"b": 1}}},
        {"priority": 11},
        {"mode": "maybe"},
        {"run_at": datetime(2100, 1, 1, tzinfo=UTC)},
    ],
)
async def test_options_out_of_bounds_are_refused(store: RememberingStore, wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestInvalid):
        await count.enqueue({"number": 1}, **wrong)
    assert store.jobs == []


async def test_a_child_is_linked_to_its_parent(store: RememberingStore) -> None:
    await context().enqueue(count, {"number": 1}, tags=["child"])
    assert store.jobs[0].parent_id == JOB_ID
    assert store.jobs[0].tags == ("child",)
    assert isinstance(store.jobs[0].id, UUID)
