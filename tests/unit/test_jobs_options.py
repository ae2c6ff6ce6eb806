"""Options of any type at all, on every way to enqueue from code: refused by name with a repair, or taken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from types import MappingProxyType
from typing import Any, TypeAlias
from uuid import UUID

import pytest

from app.domain.errors import RequestInvalid
from app.drivers.memory.driver import MemoryDriver
from app.drivers.memory.outbox_rows import MemoryTransaction
from app.jobs import Client, JobHandle, job, use_client
from app.jobs.request import EnqueueRequest

PARENT = UUID("0198c0f4-7c1a-7b3e-9a55-3f0a1c2d4e5f")


class Nowhere(tzinfo):
    """A zone that does not know its offset: as good as none."""

    def utcoffset(self, _at: datetime | None, /) -> None:
        return None

    dst = tzname = utcoffset


@job("orders.count", idempotency_key="order:{number}")
def count(number: int) -> None: ...


HANDLE: JobHandle[Any, Any] = count


@pytest.fixture
def driver() -> Iterator[MemoryDriver]:
    driver = MemoryDriver()
    with use_client(Client(driver)):
        yield driver


async def enqueue(_: MemoryTransaction, **options: Any) -> object:
    return await HANDLE.enqueue({"number": 1}, **options)


async def enqueue_many(_: MemoryTransaction, **options: Any) -> object:
    return await HANDLE.enqueue_many([{"number": 1}, {"number": 2}], **options)


async def enqueue_staged(session: MemoryTransaction, **options: Any) -> object:
    return await HANDLE.enqueue({"number": 1}, session=session, **options)


async def enqueue_many_staged(session: MemoryTransaction, **options: Any) -> object:
    return await HANDLE.enqueue_many([{"number": 1}], session=session, **options)


async def stage(session: MemoryTransaction, **options: Any) -> object:
    return HANDLE.stage({"number": 1}, session=session, **options)


Way: TypeAlias = Callable[..., Awaitable[object]]
WAYS: list[Way] = [enqueue, enqueue_many, enqueue_staged, enqueue_many_staged, stage]

# By field and by what its repair must name: values that are not of its type.
WRONG: dict[tuple[str, str], list[object]] = {
    ("delay", "timedelta"): [5, 0.5, "5s", True],
    ("timeout", "timedelta"): [5, "5s", date(2026, 12, 1)],
    ("dedupe_for", "timedelta"): [5, "5s", []],
    ("run_at", "datetime"): ["2026-12-01T00:00:00Z", 1_800_000_000, date(2026, 12, 1)],
    ("run_at", "UTC"): [datetime(2026, 12, 1), datetime(2026, 12, 1, tzinfo=Nowhere())],  # noqa: DTZ001 # naive
    ("max_attempts", "max_attempts"): ["x", "3", 2.0, True, [3]],
    ("priority", "priority"): ["x", "3", 2.0, True, int],
    ("queue", "queue"): [5, b"mail", ["mail"]],
    ("idempotency_key", "idempotency_key="): [5, b"k", ("k",), PARENT],
    ("on_conflict", "on_conflict"): [5, True, ["return"], {}],
    ("tags", "tags="): ["abc", b"abc", 5, {"a": 1}, (tag for tag in "ab")],
    ("tags", "tags"): [[1], ["a", None], [b"a"], [["a"]]],
    ("meta", "meta="): [[], (), "", "abc", 5, [("a", 1)], {1: "a"}, {None: 1}],
    ("meta", "meta"): [{"a": {}}, {"a": object()}, {"a": b"b"}, {"a": "\ud800"}],
    ("parent_id", "UUID"): [5, b"x" * 16, "", "no id", f"{{{PARENT}}}", PARENT.hex, PARENT.int],
    ("traceparent", "traceparent"): [5, b"00-x", "00-x"],
    ("enqueued_by", "enqueued_by"): [5, b"me", ["me"]],
    ("tenant", "tenant"): [5, b"acme", PARENT],
}


async def stored(driver: MemoryDriver) -> int:
    """Count what is stored, and what is staged."""
    return sum((await driver.stats()).by_state.values()) + (await driver.outbox.view()).staged


@pytest.mark.parametrize(
    ("field", "repair", "value"),
    [(field, repair, value) for (field, repair), values in WRONG.items() for value in values],
    ids=lambda value: value if isinstance(value, str) and value.isascii() else None,
)
async def test_an_option_of_another_type_is_refused_by_name_and_nothing_is_stored(
    driver: MemoryDriver, field: str, repair: str, value: object
) -> None:
    with driver.outbox.transaction() as session:
        for way in WAYS:
            with pytest.raises(RequestInvalid) as refused:
                await way(session, **{field: value})
            assert refused.value.details["pointer"] == f"/{field}"
            assert field in refused.value.cause
            assert repair in refused.value.fix
            str(refused.value).encode()
    assert await stored(driver) == 0


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_an_unknown_option_is_refused_with_those_there_are(driver: MemoryDriver, way: Way) -> None:
    with driver.outbox.transaction() as session, pytest.raises(RequestInvalid, match="dealy") as refused:
        await way(session, dealy=3)
    assert "delay" in refused.value.fix


RIGHT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"parent_id": PARENT}, {"parent_id": PARENT}),
    ({"parent_id": str(PARENT)}, {"parent_id": PARENT}),
    ({"parent_id": str(PARENT).upper()}, {"parent_id": PARENT}),
    ({"parent_id": None, "tags": None, "meta": None, "delay": None}, {"parent_id": None, "tags": (), "meta": None}),
    ({"tags": ["b", "a"]}, {"tags": ("b", "a")}),
    ({"tags": {"a"}}, {"tags": ("a",)}),
    ({"tags": {"a": 1}.keys()}, {"tags": ("a",)}),
    ({"meta": {}}, {"meta": "{}"}),
    ({"meta": MappingProxyType({"a": 1, "b": None})}, {"meta": '{"a":1,"b":null}'}),
    ({"delay": timedelta(0)}, {"run_at": None}),
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(("options", "fields"), RIGHT)
async def test_an_option_of_its_type_is_taken_as_it_is(
    driver: MemoryDriver, way: Way, options: dict[str, Any], fields: dict[str, Any]
) -> None:
    with driver.outbox.transaction() as session:
        answer = await way(session, **options)
    await driver.outbox.publish(10)
    first: Any = answer[0] if isinstance(answer, tuple) else answer
    view = await driver.describe(first.id)
    assert {field: getattr(view, field) for field in fields} == fields


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("payload_text", b'{"number": 1}'),
        ("payload_text", {"number": 1}),
        ("meta", {}),
        ("tags", "abc"),
        ("delay", 5),
        ("parent_id", "x"),
    ],
)
async def test_a_request_put_to_the_client_itself_is_judged_alike(driver: MemoryDriver, field: str, value: Any) -> None:
    fields: dict[str, Any] = {"name": count.name, "payload_text": '{"number": 1}', field: value}
    with pytest.raises(RequestInvalid) as refused:
        await Client(driver).enqueue(count.job_type, EnqueueRequest(**fields))
    assert refused.value.details["pointer"] == f"/{field}"


async def test_what_is_no_list_of_payloads_is_refused(driver: MemoryDriver) -> None:
    payloads: Any = 5
    with pytest.raises(RequestInvalid, match="payloads"):
        await HANDLE.enqueue_many(payloads)
    assert await stored(driver) == 0


async def test_a_zone_is_any_that_knows_its_offset(driver: MemoryDriver) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    answer = await count.enqueue({"number": 1}, run_at=at)
    view = await driver.describe(answer.id)
    assert view is not None
    assert view.run_at == at
