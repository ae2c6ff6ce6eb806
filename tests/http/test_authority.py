"""Who may do what: every operation of the API by every scope and tenant, each cell looked at, with real keys.

The table below is written by hand, so that a route which asks for too little is found; a route that is not in it fails.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest

from app.control.keys import KeyOrder
from app.domain.api_key import Scope
from app.domain.audit import Acting, AuditQuery
from app.domain.event import EventQuery
from app.domain.job import JobId
from app.domain.webhook import Callback
from app.drivers.bulk import bulk_of
from app.drivers.reading import ListQuery
from tests.http.api import KEY, Api, code_of, job_type
from tests.http.test_openapi import DOCUMENT
from tests.support.drivers import NAME, QUEUE, DriverEnv

READ, WRITE, PAYLOAD, OPERATE, ADMIN = Scope
CANARY = "c4nary"

OPEN = {"getLivez", "getReadyz", "getStartupz", "describeProblem"}
# It never ends, and says nothing of anybody's: its scope is looked at over a socket, in `test_topics`.
ENDLESS = {"streamTopics"}
NEEDS: dict[str, frozenset[Scope]] = {
    **dict.fromkeys(("getVersion", "getOpenapi"), frozenset[Scope]()),
    **dict.fromkeys(
        ("listJobs", "getJob", "listAttempts", "explainJob", "listSteps", "getTimeline"), frozenset({READ})
    ),
    **dict.fromkeys(("listLogs", "streamJob", "listEvents", "describeJobTypes", "describeJobType"), frozenset({READ})),
    **dict.fromkeys(("listBulkOperations", "getBulkOperation", "listBulkOperationItems"), frozenset({READ})),
    **dict.fromkeys(
        ("listDeadLetters", "listDeploys", "getDrainStatus", "getOutbox", "listQueues", "getQueue", "getStats"),
        frozenset({READ}),
    ),
    **dict.fromkeys(
        ("listSlots", "listLimits", "listSchedules", "previewSchedule", "getSchedule", "listWorkers", "getWorker"),
        frozenset({READ}),
    ),
    **dict.fromkeys(("getResult", "revealJob"), frozenset({READ, PAYLOAD})),
    **dict.fromkeys(("enqueueJob", "enqueueBatch", "emitEvent"), frozenset({WRITE})),
    "duplicateJob": frozenset({OPERATE, WRITE}),
    **dict.fromkeys(("cancelJob", "retryJob", "forkJob", "releaseJob", "runJobNow", "updateJob"), frozenset({OPERATE})),
    **dict.fromkeys(
        ("deleteJob", "createBulkOperation", "abortBulkOperation", "purgeDeadLetters", "retryDeadLetters"),
        frozenset({OPERATE}),
    ),
    "retryDeadLetters": frozenset({OPERATE}),
    **dict.fromkeys(("updateQueue", "pauseQueue", "resumeQueue", "releaseSlots", "setLimit"), frozenset({OPERATE})),
    **dict.fromkeys(("pauseSchedule", "resumeSchedule", "triggerSchedule"), frozenset({OPERATE})),
    **dict.fromkeys(("drainWorker", "startDrain", "listAudit", "examineService", "getMetrics"), frozenset({OPERATE})),
    **dict.fromkeys(("listApiKeys", "createApiKey", "getApiKey", "rotateApiKey", "revokeApiKey"), frozenset({ADMIN})),
    **dict.fromkeys(("listWebhooks", "getWebhook", "listDeliveries", "resendDelivery"), frozenset({OPERATE})),
    **dict.fromkeys(("createWebhook", "updateWebhook", "rotateWebhook", "deleteWebhook"), frozenset({ADMIN})),
}
BODIES: dict[str, Any] = {
    "enqueueJob": {"name": NAME, "payload": {}},
    "enqueueBatch": {"jobs": [{"name": NAME, "payload": {}}]},
    "emitEvent": {"name": "order.approved", "key": "7"},
    "updateJob": {"priority": 1},
    "updateQueue": {"concurrency": 7},
    "setLimit": {"n": 2},
    "purgeDeadLetters": {"older_than_ms": 0},
    "retryDeadLetters": {"group": {"name": NAME, "reason": "terminal"}},
    "createBulkOperation": {"action": "cancel", "selector": {"filter": {"state": ["delayed"]}}},
    "createApiKey": {"label": "more", "scopes": ["admin"]},
    "createWebhook": {"label": "more", "url": "https://hooks.example.com/"},
    "updateWebhook": {"is_disabled": True},
}
# Where something of one tenant is named by its id.
_ABSENT = {
    "bulk_id": str(uuid4()),
    "key_id": "0" * 16,
    "webhook_id": f"wh_{'1' * 16}",
    "delivery_id": str(uuid4()),
}
BY_ID = re.compile(r"{(job_id|bulk_id|key_id|webhook_id)}")
# What is no matter of one queue alone, for keys that are bound to queues.
BEYOND_QUEUES = {
    *("emitEvent", "createBulkOperation", "purgeDeadLetters", "pauseSchedule", "resumeSchedule", "triggerSchedule"),
    *("drainWorker", "startDrain", "setLimit", "retryDeadLetters"),
    *("listWebhooks", "getWebhook", "listDeliveries", "resendDelivery"),
    *("createWebhook", "updateWebhook", "rotateWebhook", "deleteWebhook"),
}


@dataclass(frozen=True)
class Operation:
    """One operation of the document."""

    name: str
    method: str
    path: str

    async def by(self, client: httpx.AsyncClient, ids: dict[str, str]) -> httpx.Response:
        """Ask for it, with what it needs to come to its verb."""
        path = self.path
        for name, value in {**ids, "name": QUEUE, "worker_id": "1", "code": "FORBIDDEN"}.items():
            path = path.replace(f"{{{name}}}", value)
        body = {"json": BODIES[self.name]} if self.name in BODIES else {}
        params = {"cron": "@daily", "tz": "UTC"} if self.name == "previewSchedule" else {}
        return await client.request(self.method, path, params=params, headers={"If-Match": "*"}, **body)


OPERATIONS = [
    Operation(operation["operationId"], method.upper(), path)
    for path, methods in sorted(DOCUMENT["paths"].items())
    for method, operation in sorted(methods.items())
    if operation["operationId"] not in OPEN | ENDLESS
]


class World:
    """An application over a store in which each of two tenants has one of everything."""

    def __init__(self, env: DriverEnv) -> None:
        self.env = env
        self.api = Api(env, key=KEY)

    async def client(self, tenant: str | None, *scopes: Scope, **fields: Any) -> httpx.AsyncClient:
        """Give a client with a key made for it. One without a scope is known, and may do nothing."""
        order = KeyOrder(label="k", tenant=tenant, scopes=frozenset(scopes or {READ}), **fields)
        issued = await self.api.services.keys.create(order, by=Acting(actor="ada"))
        return self.api.client_with({"Authorization": f"Bearer {issued.token}"})

    async def things(self, tenant: str) -> dict[str, str]:
        """Make one of everything that has an id, of a tenant, and give the ids."""
        job_id = await self.env.enqueue(tenant=tenant, payload=f'{{"secret": "{CANARY}-{tenant}"}}', queue=QUEUE)
        async with await self.client(tenant, *Scope) as client:
            made = await client.post("/v1/events", json={"name": "order.placed", "key": "1", "payload": CANARY})
            assert made.status_code == 202, made.text
            filters = {"action": "run_now", "selector": {"filter": {"state": ["delayed"]}}}
            bulk = await client.post("/v1/bulk-operations", json=filters)
            assert bulk.status_code == 202, bulk.text
        order = KeyOrder(label=f"{CANARY}-{tenant}", tenant=tenant, scopes=frozenset({READ}))
        key = await self.api.services.keys.create(order, by=Acting(actor="ada"))
        webhook = await self._webhook(tenant)
        return {"job_id": str(job_id), "bulk_id": bulk.json()["id"], "key_id": key.key.id} | webhook

    async def _webhook(self, tenant: str) -> dict[str, str]:
        """Make a webhook with one delivery that is over."""
        webhooks = self.api.services.webhooks
        url = f"https://hooks.example.com/{CANARY}-{tenant}"
        made = await webhooks.create(label="shop", url=url, tenant=tenant, by=Acting(actor="ada"))
        callback = Callback(webhook=made.webhook.id).text()
        await self.env.driver.cancel(await self.env.enqueue(tenant=tenant, callback=callback), reason="stop")
        (delivery,) = (await webhooks.deliveries(made.webhook.id, tenant=tenant)).items
        return {"webhook_id": made.webhook.id, "delivery_id": str(delivery.id)}

    async def all_of(self, tenant: str) -> object:
        """Give everything there is of a tenant, to be compared."""
        bulk = bulk_of(self.env.driver)
        assert bulk is not None
        keys = await self.api.services.keys.list(tenant=tenant)
        page = await self.env.driver.list(ListQuery(tenant=tenant))
        return (
            page.items,
            [await self.env.driver.describe(view.id) for view in page.items],
            await self.env.driver.events(EventQuery(tenant=tenant)),
            await bulk.operations(limit=50, tenant=tenant),
            [key for key in keys if key.label != "k"],
            webhooks := await self.api.services.webhooks.list(tenant=tenant),
            [await self.api.services.webhooks.deliveries(each.id, tenant=tenant) for each in webhooks],
            [row for row in (await self.env.driver.audit(AuditQuery(limit=200))).items if row.tenant == tenant],
        )


@pytest.fixture
async def world(env: DriverEnv) -> AsyncIterator[World]:
    made = World(env)
    await env.driver.publish_job_types([job_type()])
    async with made.api.up():
        yield made


def test_every_operation_is_in_the_table() -> None:
    assert {operation.name for operation in OPERATIONS} == set(NEEDS)


@pytest.mark.timeout(180)
async def test_an_operation_asks_for_its_scopes_and_no_others(memory: DriverEnv) -> None:
    world = World(memory)
    await memory.driver.publish_job_types([job_type()])
    async with world.api.up():
        await _every_cell(world)


async def _every_cell(world: World) -> None:
    every = frozenset(Scope)
    sets = {frozenset({scope}) for scope in Scope} | {every - {scope} for scope in Scope} | {every}
    sets |= {needed for needed in NEEDS.values() if needed}
    keys = {(tenant, held): await world.client(tenant, *held) for tenant in ("default", "acme", None) for held in sets}
    wrong, cells = [], 0
    for operation in OPERATIONS:
        ids, needed = await _ended(world), NEEDS[operation.name]
        async with world.api.client_with({}) as stranger:
            assert code_of(await operation.by(stranger, ids)) == (401, "UNAUTHENTICATED"), operation
        for (tenant, held), client in keys.items():
            answer = await operation.by(client, ids)
            cells += 1
            if needed <= held:
                is_right = answer.status_code not in {401, 403}
            else:
                is_right = code_of(answer) == (403, "FORBIDDEN")
                is_right &= all(scope in answer.json()["detail"] for scope in needed - held)
            if not is_right:
                wrong.append((operation.name, tenant, sorted(held), answer.status_code, answer.text))
    for client in keys.values():
        await client.aclose()
    assert wrong == []
    assert cells >= 2_000


async def _ended(world: World) -> dict[str, str]:
    job_id = await world.env.enqueue()
    await world.env.driver.cancel(job_id, reason="stop")
    return {"job_id": str(job_id), **_ABSENT}


async def test_another_tenants_key_sees_and_does_nothing(world: World) -> None:
    theirs = await world.things("globex")
    await world.things("acme")
    absent = {"job_id": str(uuid4()), **_ABSENT}
    before = await world.all_of("globex")
    async with await world.client("acme", *Scope) as client:
        for operation in OPERATIONS:
            answer = await operation.by(client, theirs)
            for secret in (f"{CANARY}-globex", *theirs.values()):
                if secret not in str(answer.request.url):
                    assert secret not in answer.text, operation
            if BY_ID.search(operation.path):
                nothing = await operation.by(client, absent)
                assert answer.status_code == nothing.status_code == 404, operation
                assert _without(answer, theirs) == _without(nothing, absent), operation
    assert await world.all_of("globex") == before


async def test_ones_own_tenants_things_are_seen(world: World) -> None:
    """The other half of the cells: what is hidden from the others is there."""
    own = await world.things("acme")
    async with await world.client("acme", *Scope) as client, await world.client(None, *Scope) as every:
        for operation in OPERATIONS:
            if operation.method == "GET" and BY_ID.search(operation.path) and operation.name != "streamJob":
                for one in (client, every):
                    assert (await operation.by(one, own)).status_code in {200, 202}, operation
        for name in ("listJobs", "listBulkOperations", "listEvents", "listApiKeys", "listWebhooks", "listDeliveries"):
            operation = next(each for each in OPERATIONS if each.name == name)
            for one in (client, every):
                assert (await operation.by(one, own)).json()["items"], operation


async def test_another_tenant_cannot_be_asked_for(world: World) -> None:
    async with await world.client("acme", *Scope) as client:
        for path in ("/v1/jobs", "/v1/events", "/v1/audit", "/v1/bulk-operations"):
            assert code_of(await client.get(path, params={"tenant": "globex"})) == (403, "FORBIDDEN"), path
        event = {"name": "order.placed", "key": "1", "tenant": "globex"}
        assert code_of(await client.post("/v1/events", json=event)) == (403, "FORBIDDEN")


async def test_one_key_of_two_tenants_is_two_keys(world: World) -> None:
    """An idempotency key is no oracle: the other tenant's job with it is neither found nor in the way."""
    body = {"name": NAME, "payload": {}, "idempotency_key": "order:1", "on_conflict": "error"}
    await world.env.driver.publish_job_types([job_type("shop.job", tenant={"template": "{shop}"})])
    made = []
    for tenant in ("acme", "globex"):
        async with await world.client(tenant, *Scope) as client:
            answer = await client.post("/v1/jobs", json=body | {"name": "shop.job", "payload": {"shop": tenant}})
            assert (answer.status_code, answer.json()["deduped"]) == (201, False), answer.text
            made.append(answer.json()["id"])
    assert len(set(made)) == 2


async def test_a_key_bound_to_queues_acts_on_those_alone(world: World) -> None:
    fine, other = await world.env.enqueue(queue="mail"), await world.env.enqueue(queue="slow")
    await world.env.driver.publish_job_types([job_type("mail.send", queue="mail")])
    async with await world.client("default", *Scope, queues=frozenset({"mail"})) as client:
        for operation in OPERATIONS:
            if operation.name in BEYOND_QUEUES:
                refused = await operation.by(client, {"job_id": str(fine), **_ABSENT})
                assert code_of(refused) == (403, "FORBIDDEN"), operation
                assert "queue" in refused.json()["detail"]
            elif "{job_id}" in operation.path and operation.method != "GET":
                before = await world.env.describe(other)
                assert code_of(await operation.by(client, {"job_id": str(other)})) == (403, "FORBIDDEN"), operation
                assert await world.env.describe(other) == before
        assert (await client.post("/v1/queues/slow/pause")).status_code == 403
        assert (await client.post("/v1/queues/mail/pause")).status_code == 200
        mail = {"name": "mail.send", "payload": {}}
        assert (await client.post("/v1/jobs", json=mail)).status_code == 201
        assert code_of(await client.post("/v1/jobs", json=mail | {"queue": "slow"})) == (403, "FORBIDDEN")
        assert (await client.post(f"/v1/jobs/{fine}/cancel")).status_code == 200
        selected = {"action": "cancel", "selector": {"filter": {"state": ["ready"], "queue": "mail"}}}
        assert (await client.post("/v1/bulk-operations", json=selected)).status_code == 202
        selected["selector"]["filter"]["queue"] = "slow"  # type: ignore[index]
        assert code_of(await client.post("/v1/bulk-operations", json=selected)) == (403, "FORBIDDEN")
    assert (await world.env.driver.describe(JobId(other))) is not None


def _without(answer: httpx.Response, ids: dict[str, str]) -> dict[str, Any]:
    """Give a problem without what is the request's own."""
    text = answer.text
    for name, value in ids.items():
        text = text.replace(value, name)
    return {name: value for name, value in httpx.Response(200, text=text).json().items() if name != "request_id"}


async def test_another_tenants_job_is_no_parent_and_answers_as_one_that_is_not_there(world: World) -> None:
    theirs, ours = await world.env.enqueue(tenant="globex"), await world.env.enqueue(tenant="acme")
    async with await world.client("acme", WRITE) as client:
        answers = []
        for parent in (theirs, uuid4()):
            job = {"name": NAME, "payload": {}, "parent_id": str(parent)}
            one = await client.post("/v1/jobs", json=job)
            many = await client.post("/v1/job-batches", json={"jobs": [{"name": NAME, "payload": {}}, job]})
            assert code_of(one) == code_of(many) == (422, "REQUEST_INVALID")
            pointers = [each.json()["errors"][0]["pointer"] for each in (one, many)]
            assert pointers == ["/parent_id", "/jobs/1/parent_id"]
            answers.append((one.json()["detail"], one.json()["fix"], many.json()["detail"]))
        assert answers[0] == answers[1]
        job = {"name": NAME, "payload": {}, "parent_id": str(ours)}
        assert (await client.post("/v1/jobs", json=job)).status_code == 201
        assert (await client.post("/v1/job-batches", json={"jobs": [job, job]})).status_code == 200
    page = await world.env.driver.list(ListQuery(parent_id=theirs))
    assert page.items == ()
