"""Every method of both clients against the published description: what it sends fits, what it gets is read whole."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest
from pydantic import BaseModel

from app.client import UNCHANGED, AsyncClient, Client
from app.client.answers.fleet import Fates, Finding, JobType
from app.client.answers.operations import BulkItem, DeadGroup, DeadPurge, ErrorKind
from app.client.answers.runs import Reason, Waits
from app.client.answers.shown import EnqueuedJob, JobError, JobSummary, Shown
from app.client.bound import Async, AsyncPages, Sync, SyncPages
from app.client.calls.queues import limit_queue
from app.domain.state import State
from tests.client.described import DOCUMENT, NAMES, OPERATIONS, Described

ID = UUID("0198c0f4-7c1a-7b3e-9a55-3f0a1c2d4e5f")
HOOK = "wh_5f0c8a1be2d34976"
AT = datetime(2027, 1, 31, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)

GROUP = DeadGroup(name="a", reason="terminal", error_type="E", error_code=None, count=1, first_at=AT, last_at=AT)
WHICH: dict[str, Any] = {
    "state": [State.DEAD, "held"], "name": "demo.count_lines", "queue": "mail", "tenant": "a", "tag": "x",
    "tag_all": ["y", "z"], "key": "k", "parent_id": ID, "worker_id": "17", "error_code": "JOB_TIMEOUT",
    "created_after": AT, "created_before": AT, "finished_after": AT, "finished_before": AT,
    "run_at_after": AT, "run_at_before": AT,
}  # fmt: skip
# By the way from the client: arguments that say everything there is to say.
ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "enqueue": (
        ("demo.count_lines", {"at": AT}),
        {
            "queue": "mail", "priority": 0, "run_at": AT, "max_attempts": 3, "timeout": HOUR, "idempotency_key": "k 1",
            "on_conflict": "error", "dedupe_for": HOUR, "tags": ("a",), "meta": {"n": 1}, "parent_id": ID,
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "callback": {"secret_id": HOOK, "url": "https://hooks.example.com/7", "events": ["done"]},
        },
    ),
    "enqueue_many": (("demo.count_lines", [{"at": AT}, {}]), {"queue": "mail", "delay": HOUR, "tags": ["a"]}),
    "enqueue_each": (("demo.count_lines", [{"at": AT}, {}]), {"queue": "mail", "delay": HOUR, "tags": ["a"]}),
    "get": ((ID,), {"include": ["error", "attempts", "steps"]}),
    "list": ((), {"limit": 7, "sort": "run_at", "include": ["payload", "error"], **WHICH}),
    "count": ((), WHICH),
    "cancel": ((ID,), {"reason": "no longer"}),
    "retry": ((ID,), {"mode": "resume", "from_step": "load", "reason": "mended"}),
    "fork": ((ID,), {"from_step": "load", "reason": "mended"}),
    "duplicate": ((ID,), {"input_patch": {"shop": None}, "reason": "another"}),
    "run_now": ((ID,), {"reason": "now"}),
    "release": ((ID,), {"reason": "rolled back"}),
    "reveal": ((ID,), {"reason": "the customer asks"}),
    "update": ((ID,), {"version": "9f2c", "priority": 1, "run_at": AT, "tags": ["b"], "max_attempts": 9,
                        "reason": "r"}),
    "delete": ((ID,), {"version": "*", "reason": "r"}),
    "attempts": ((ID,), {}),
    "steps": ((ID,), {"limit": 7}),
    "waits": ((ID,), {}),
    "logs": ((ID,), {"limit": 7}),
    "timeline": ((ID,), {}),
    "explain": ((ID,), {}),
    "result": ((ID,), {}),
    "audit": ((), {"actor": "anna", "action": "job.cancel", "target_kind": "job", "target": str(ID), "tenant": "a",
                   "created_after": AT, "created_before": AT, "limit": 7}),
    "outbox": ((), {}),
    "stats": (("24h",), {"bucket": "6h", "job_type": "demo.count_lines", "queue": "mail"}),
    "doctor": ((), {}),
    "version": ((), {}),
    "queues.list": ((), {}),
    "queues.get": (("mail",), {}),
    "queues.pause": (("mail",), {"until": AT, "reason": "r"}),
    "queues.resume": (("mail",), {"reason": "r"}),
    "queues.limit": (
        ("mail",), {"concurrency": 4, "max_depth": None, "is_fair": True, "weights": {"a": 3, "b": None},
                    "version": "41c9"},
    ),
    "schedules.list": ((), {}),
    "schedules.get": (("nightly",), {}),
    "schedules.pause": (("nightly",), {"reason": "r"}),
    "schedules.resume": (("nightly",), {"reason": "r"}),
    "schedules.trigger": (("nightly",), {"reason": "r"}),
    "schedules.preview": (("@daily", "Europe/Berlin"), {"n": 3, "after": AT}),
    "workers.list": ((), {}),
    "workers.get": (("17",), {}),
    "workers.drain": (("17",), {"reason": "r"}),
    "workers.deploys": ((), {"limit": 7}),
    "drains.get": ((), {}),
    "drains.fleet": ((), {}),
    "drains.start": ((), {}),
    "job_types.list": ((), {}),
    "job_types.get": (("demo.count_lines",), {}),
    "limits.list": ((), {"name": "demo.count_lines"}),
    "limits.set": (("demo.count_lines", "limit", None), {"reason": "r"}),
    "limits.slots": ((), {"name": "demo.count_lines", "tenant": "a", "limit": 7}),
    "limits.release": ((ID,), {"reason": "its body hangs"}),
    "webhooks.list": ((), {}),
    "webhooks.get": ((HOOK,), {}),
    "webhooks.update": ((HOOK,), {"label": "x", "url": "https://hooks.example.com/2", "is_disabled": True,
                                  "version": "1", "reason": "r"}),
    "webhooks.delete": ((HOOK,), {"reason": "r"}),
    "webhooks.deliveries": ((HOOK,), {"limit": 7}),
    "webhooks.resend": ((HOOK, ID), {"reason": "r"}),
    "bulk.count": (("cancel",), {"ids": [ID]}),
    "bulk.start": (
        ("reschedule",),
        {"filter": {"state": [State.DEAD], "name": "a", "queue": "b", "created_after": AT,
                    "error": {"reason": "terminal", "type": "E", "code": None}}, "expected_count": 7,
         "run_at": AT, "reason": "r"},
    ),
    "bulk.get": ((ID,), {}),
    "bulk.list": ((), {"tenant": "a", "limit": 7}),
    "bulk.items": ((ID,), {"verdict": ["failed"], "limit": 7}),
    "bulk.abort": ((ID,), {"reason": "r"}),
    "dead.list": ((), {}),
    "dead.count": ((GROUP,), {}),
    "dead.retry": ((GROUP,), {"expected_count": 7, "reason": "r"}),
    "dead.purge": ((), {"older_than": HOUR, "name": "a", "after": ID, "dry_run": True}),
    "keys.list": ((), {}),
    "keys.get": (("0" * 16,), {}),
    "keys.create": (("ci", ["jobs:read"]), {"tenant": "a", "queues": ["b"], "expires_at": AT, "reason": "r"}),
    "keys.rotate": (("0" * 16,), {"overlap": HOUR, "replaces": "9c1e", "reason": "r"}),
    "keys.revoke": (("0" * 16,), {"reason": "r"}),
    "emit": (("order.approved", "7", {"by": "anna"}), {"tenant": "a"}),
    "emitted": ((), {"name": "order.approved", "key": "7", "tenant": "a", "limit": 7}),
}  # fmt: skip

# Pages are gone on with by themselves.
UNSAID = {"cursor", "before"}
# Start and delay exclude each other; so do the filters of two actions.
ELSEWHERE = {"enqueueJob": {"delay_ms"}, "createBulkOperation": {"priority"}}
# What no method is for, and why.
NOT_COVERED = {
    "streamTopics": "for pages that show many things",
    "describeProblem": "the client raises the problem itself, with its repair",
    **dict.fromkeys(("getLivez", "getReadyz", "getStartupz"), "probes of the platform"),
    **dict.fromkeys(("getMetrics", "getOpenapi"), "for tools that read these"),
    **dict.fromkeys(("createWebhook", "rotateWebhook"), "an administrator's, who has `outlast webhooks`"),
}
# Streams have no example that is one value; tested over a socket.
STREAMED = {"streamJob"}

# Fields that say where else to look, or what was asked for.
LEFT_OUT = {"links", "dry_run", "items", "next_cursor", "prev_cursor", "next_before", "never_acknowledged"}


def methods(client: object) -> dict[str, Callable[..., Any]]:
    """Give every bound method of a client by the way to it."""
    kinds = (Sync, SyncPages, Async, AsyncPages)
    own = {name: getattr(client, name) for name, kind in vars(type(client)).items() if isinstance(kind, kinds)}
    for noun, value in vars(client).items():
        if not noun.startswith("_"):
            own |= {f"{noun}.{name}": method for name, method in methods(value).items()}
    return own


def sync_client(service: Described) -> Client:
    return Client("http://localhost:8080", "k" * 32, transport=httpx.MockTransport(service))


def test_both_clients_have_the_same_methods_of_the_same_descriptions() -> None:
    service = Described()
    plain = methods(sync_client(service))
    awaited = methods(AsyncClient("http://localhost:8080", transport=httpx.MockTransport(service)))
    assert sorted(plain) == sorted(awaited) == sorted(ARGUMENTS)
    for name, method in plain.items():
        assert inspect.unwrap(method) is inspect.unwrap(awaited[name]), name
        assert method.__doc__
    others = [{name for name in vars(kind) if not name.startswith("_")} for kind in (Client, AsyncClient)]
    assert others[0] == others[1]
    assert {"wait", "events", "close", "send"} <= others[0]


@pytest.mark.parametrize("way", sorted(ARGUMENTS))
def test_what_a_method_sends_is_described_and_what_it_gets_is_read_whole(way: str) -> None:
    service = Described()
    args, options = ARGUMENTS[way]
    with sync_client(service) as client:
        found = methods(client)[way](*args, **options)
        items = list(found) if isinstance(found, Iterator) else found
    assert service.asked
    assert service.requests[-1].headers["authorization"] == f"Bearer {'k' * 32}"
    answer = service.answers[-1]
    if isinstance(items, list | tuple):
        assert len(items) == len(answer["items"])
        pairs = list(zip(items, answer["items"], strict=True))
        pairs = [(value, item["job"]) for value, item in pairs] if way in {"enqueue_many", "enqueue_each"} else pairs
    else:
        pairs = [(items, answer)]
    for value, document in pairs:
        if way == "waits":
            assert list(document["waits"]) == list(value.model_dump(mode="json")["waits"])
        elif way == "count":
            assert value.model_dump() == document["count"]
        elif way == "enqueue":
            assert lost(value.job, document) <= {"deduped"}
        elif document is not None:
            assert lost(value, document) == set()


def lost(value: BaseModel, document: dict[str, Any]) -> set[str]:
    """Name the fields of an answer that are in no field of what was read from it."""

    def missing(read: Any, sent: Any, where: str) -> Iterator[str]:
        if isinstance(sent, dict) and isinstance(read, dict):
            for name, inner in sent.items():
                if name in LEFT_OUT and name not in read:
                    continue
                if name not in read:
                    yield f"{where}{name}"
                else:
                    yield from missing(read[name], inner, f"{where}{name}.")
        elif isinstance(sent, list) and isinstance(read, list):
            assert len(sent) == len(read)
            for one, other in zip(read, sent, strict=True):
                yield from missing(one, other, where)

    return set(missing(value.model_dump(mode="json"), document, ""))


SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
# Answers that are called otherwise here; None: a part of others, or the answer of a few fields' own.
RENAMED: dict[type[Shown], str | None] = {
    BulkItem: "BulkJob",
    DeadGroup: "DeadLetterGroup",
    DeadPurge: "DeadLetterPurge",
    ErrorKind: "BulkErrorKind",
    Finding: "CheckFound",
    JobError: "AttemptError",
    JobType: "JobTypeDocument",
    Reason: "ExplainedReason",
    EnqueuedJob: "EnqueuedReceipt",
    Fates: None,
    JobSummary: None,
    Waits: "StepList",
}
# Of job types the document names what every one has; `job` is the whole answer once more.
MORE: dict[type[Shown], set[str]] = {
    JobType: {"doc", "payload_schema", "result_schema", "policy"},
    EnqueuedJob: {"job"},
}
LESS: dict[type[Shown], set[str]] = {EnqueuedJob: {"state"}}


def kinds_of(kind: type[Shown]) -> Iterator[type[Shown]]:
    for each in kind.__subclasses__():
        yield each
        yield from kinds_of(each)


ANSWERS = {kind.__name__: kind for kind in kinds_of(Shown)}


@pytest.mark.parametrize("kind", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_has_every_field_of_its_description_and_no_other(kind: type[Shown]) -> None:
    name = RENAMED.get(kind, kind.__name__)
    if name is None:
        return
    described = set(SCHEMAS[name]["properties"]) - LEFT_OUT - LESS.get(kind, set())
    assert set(kind.model_fields) - LEFT_OUT - MORE.get(kind, set()) == described


async def test_the_awaited_client_sends_and_reads_the_same() -> None:
    plain, awaited = Described(), Described()
    with sync_client(plain) as client:
        async with AsyncClient("http://localhost:8080", "k" * 32, transport=httpx.MockTransport(awaited)) as other:
            for way, (args, options) in ARGUMENTS.items():
                found = methods(client)[way](*args, **options)
                mine = list(found) if isinstance(found, Iterator) else found
                said = methods(other)[way](*args, **options)
                theirs = [one async for one in said] if isinstance(said, AsyncIterator) else await said
                assert theirs == mine, way
    for one, two in zip(plain.requests, awaited.requests, strict=True):
        assert (one.method, one.url, one.content) == (two.method, two.url, two.content)


def test_every_operation_has_a_method_or_a_reason_not_to() -> None:
    service = Described()
    with sync_client(service) as client:
        for way, (args, options) in ARGUMENTS.items():
            found = methods(client)[way](*args, **options)
            if isinstance(found, Iterator):
                list(found)
    assert set(service.asked) | set(NOT_COVERED) | STREAMED == NAMES
    assert not set(service.asked) & set(NOT_COVERED)


def test_every_field_of_a_query_and_of_a_body_can_be_said() -> None:
    service = Described()
    said: dict[str, set[str]] = {}
    with sync_client(service) as client:
        for way, (args, options) in ARGUMENTS.items():
            found = methods(client)[way](*args, **options)
            list(found) if isinstance(found, Iterator) else None
    for name, request in zip(service.asked, service.requests, strict=True):
        said.setdefault(name, set()).update(request.url.params, json.loads(request.content or b"{}"))
    for operation in OPERATIONS.values():
        name = operation["operationId"]
        known = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
        for media in operation.get("requestBody", {}).get("content", {}).values():
            known |= set(SCHEMAS[media["schema"]["$ref"].rpartition("/")[2]]["properties"])
        if name not in {*NOT_COVERED, *STREAMED}:
            assert known - said[name] <= UNSAID | ELSEWHERE.get(name, set()), name


def test_ids_and_names_stay_one_part_of_the_path() -> None:
    asked: list[bytes] = []

    def service(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path)
        return httpx.Response(404, json={"code": "JOB_NOT_FOUND", "detail": "no", "fix": "none"})

    with Client("http://localhost/mounted/", transport=httpx.MockTransport(service)) as client:
        for name in ("../x", "a/b?c#d", "ä"):
            with pytest.raises(Exception, match="JOB_NOT_FOUND"):
                client.cancel(name)
    assert asked == [
        b"/mounted/v1/jobs/..%2Fx/cancel",
        b"/mounted/v1/jobs/a%2Fb%3Fc%23d/cancel",
        b"/mounted/v1/jobs/%C3%A4/cancel",
    ]


def test_a_limit_that_is_not_named_stays() -> None:
    assert limit_queue("mail", max_depth=None).body == {"max_depth": None}
    assert limit_queue("mail", concurrency=3).body == {"concurrency": 3}
    assert limit_queue("mail", concurrency=UNCHANGED).body == {}


def test_the_version_of_a_job_that_was_read_goes_with_its_change() -> None:
    service = Described()
    with sync_client(service) as client:
        job = client.get(ID)
        client.update(job, priority=1)
        client.update(job, priority=1, version="*")
        client.delete(job)
    tags = [request.headers.get("if-match") for request in service.requests[1:]]
    assert tags == [f'"{job.version}"', "*", None]
    assert json.loads(service.requests[1].content) == {"priority": 1}
