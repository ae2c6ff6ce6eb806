"""API keys over HTTP: what they open, that a secret is seen once, and that they end everywhere."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.domain.api_key import KnownKey
from app.domain.audit import AuditQuery
from app.domain.errors import DriverUnavailable
from app.domain.outcome import Completed
from app.drivers.api_keys import keys_of
from app.http.answers_keys import ApiKeyList, IssuedApiKey
from tests.http.api import KEY, Api, code_of, job_type, waiting
from tests.support.drivers import NAME, DriverEnv


@pytest.fixture
async def each_locked(env: DriverEnv) -> AsyncIterator[Api]:
    """The service with a bootstrap key over each driver in turn."""
    made = Api(env, key=KEY)
    await env.driver.publish_job_types([job_type()])
    async with made.client:
        yield made


async def made(api: Api, *scopes: str, by: httpx.AsyncClient | None = None, **fields: Any) -> dict[str, Any]:
    """Make a key and give the answer."""
    body = {"label": "ci", "scopes": list(scopes) or ["jobs:read"], **fields}
    response = await (by or api.client).post("/v1/api-keys", json=body)
    assert response.status_code == 201, response.text
    IssuedApiKey.model_validate(response.json())
    answer: dict[str, Any] = response.json()
    assert response.headers["location"] == f"/v1/api-keys/{answer['id']}"
    return answer


def with_key(api: Api, key: dict[str, Any]) -> httpx.AsyncClient:
    return api.client_with({"Authorization": f"Bearer {key['token']}"})


async def test_a_request_key_is_refused_where_answers_hold_secrets(locked: Api) -> None:
    key = await made(locked)
    path = f"/v1/api-keys/{key['id']}"
    for method, where, body in (
        ("POST", "/v1/api-keys", {"label": "ci", "scopes": ["jobs:read"]}),
        ("POST", f"{path}/rotate", {}),
        ("DELETE", path, None),
    ):
        refused = await locked.client.request(method, where, json=body, headers={"Idempotency-Key": '"1"'})
        assert code_of(refused) == (400, "REQUEST_INVALID")
        assert refused.json()["errors"][0]["pointer"] == "/Idempotency-Key"
        assert refused.json()["fix"].startswith("leave it out")
    assert [each["id"] for each in (await locked.client.get("/v1/api-keys")).json()["items"]] == [key["id"]]
    assert (await locked.client.get(path)).json()["revoked_at"] is None


async def test_a_key_opens_what_its_scopes_say(each_locked: Api) -> None:
    key = await made(each_locked, "jobs:read")
    async with with_key(each_locked, key) as reader:
        assert (await reader.get("/v1/jobs")).status_code == 200
        refused = await reader.post("/v1/jobs", json={"name": NAME, "payload": {}})
        assert code_of(refused) == (403, "FORBIDDEN")
        assert "jobs:write" in refused.json()["detail"]
        assert "--scope jobs:write" in refused.json()["fix"]
    async with each_locked.client_with({"Authorization": f"Bearer {key['token'][:-64]}{'0' * 64}"}) as wrong:
        answer = await wrong.get("/v1/jobs")
        assert code_of(answer) == (401, "UNAUTHENTICATED")
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_secret_is_answered_once(each_locked: Api) -> None:
    key = await made(each_locked)
    secret = key["token"].rpartition("_")[2]
    listed = await each_locked.client.get("/v1/api-keys")
    ApiKeyList.model_validate(listed.json())
    one = await each_locked.client.get(f"/v1/api-keys/{key['id']}")
    audit = await each_locked.client.get("/v1/audit")
    for response in (listed, one, audit):
        assert response.status_code == 200
        assert secret not in response.text
    assert one.json() == listed.json()["items"][0]
    assert one.json()["last4"] == secret[-4:]


async def test_a_rotated_key_takes_both_secrets_for_a_while(each_locked: Api) -> None:
    key = await made(each_locked)
    path = f"/v1/api-keys/{key['id']}/rotate"
    second = (await each_locked.client.post(path)).json()
    IssuedApiKey.model_validate(second)
    for one in (key, second):
        async with with_key(each_locked, one) as client:
            assert (await client.get("/v1/jobs")).status_code == 200
    third = (await each_locked.client.post(path, json={"overlap_ms": 0})).json()
    for one, status in ((key, 401), (second, 401), (third, 200)):
        async with with_key(each_locked, one) as client:
            assert (await client.get("/v1/jobs")).status_code == status


async def test_a_revoked_key_opens_nothing_in_any_process_five_seconds_later(each_locked: Api) -> None:
    """Two applications over one store, in real time: the other one has the key at hand when it is revoked."""
    other = Api(each_locked.env, key=KEY)
    key = await made(each_locked)
    async with with_key(other, key) as there, with_key(each_locked, key) as here:
        assert (await there.get("/v1/jobs")).status_code == 200
        answer = await each_locked.client.delete(f"/v1/api-keys/{key['id']}")
        revoked_at = time.monotonic()
        assert answer.json()["revoked_by"] == "bootstrap"
        assert code_of(await here.get("/v1/jobs")) == (401, "UNAUTHENTICATED")
        async with asyncio.timeout(5):
            while (await there.get("/v1/jobs")).status_code == 200:
                await asyncio.sleep(0.05)
        assert time.monotonic() - revoked_at < 5
        assert code_of(await there.get("/v1/jobs")) == (401, "UNAUTHENTICATED")
    await other.guard.write()


async def test_nobody_is_let_in_by_what_was_known_too_long_ago(memory: DriverEnv) -> None:
    api = Api(memory, key=KEY)
    key = await made(api)
    async with with_key(api, key) as client:
        assert (await client.get("/livez")).status_code == 200
        assert (await client.get("/v1/job-types")).status_code == 200
        ring = api.guard._ring
        assert ring is not None
        ring._asked_at -= 10
        await memory.driver.close()
        assert code_of(await client.get("/v1/job-types")) == (503, DriverUnavailable.code)


async def test_a_key_makes_none_that_may_do_more(each_locked: Api) -> None:
    narrow = await made(each_locked, "admin", "jobs:read", queues=["mail"])
    wide = await made(each_locked, "operate")
    async with with_key(each_locked, narrow) as client:
        for body in (
            {"scopes": ["operate"]},
            {"scopes": ["jobs:read"], "tenant": "acme"},
            {"scopes": ["jobs:read"], "queues": ["mail", "slow"]},
        ):
            answer = await client.post("/v1/api-keys", json={"label": "more", **body})
            assert code_of(answer) == (403, "FORBIDDEN")
        assert (await made(each_locked, "jobs:read", by=client))["queues"] == ["mail"]
        assert code_of(await client.post(f"/v1/api-keys/{wide['id']}/rotate")) == (403, "FORBIDDEN")


async def test_another_tenants_keys_are_absent(each_locked: Api) -> None:
    async with asyncio.timeout(20):
        issued = await _key_of(each_locked, "acme")
    mine = await made(each_locked)
    async with with_key(each_locked, issued) as acme:
        assert [row["id"] for row in (await acme.get("/v1/api-keys")).json()["items"]] == [issued["id"]]
        absent = await acme.get("/v1/api-keys/0000000000000000")
        for response in (
            await acme.get(f"/v1/api-keys/{mine['id']}"),
            await acme.delete(f"/v1/api-keys/{mine['id']}"),
            await acme.post(f"/v1/api-keys/{mine['id']}/rotate"),
        ):
            assert code_of(response) == (404, "NOT_FOUND")
            assert response.json()["detail"].replace(mine["id"], "0" * 16) == absent.json()["detail"]


async def _key_of(api: Api, tenant: str) -> dict[str, Any]:
    """Make a key of another tenant, as an operator does on the command line."""
    from app.control.keys import KeyOrder  # noqa: PLC0415 - of this helper alone
    from app.domain.api_key import Scope  # noqa: PLC0415
    from app.domain.audit import Acting  # noqa: PLC0415

    order = KeyOrder(label=tenant, tenant=tenant, scopes=frozenset(Scope))
    issued = await api.services.keys.create(order, by=Acting(actor="cli:ada"))
    return {"id": issued.key.id, "token": issued.token}


@pytest.mark.parametrize(
    "body",
    [
        {"label": "x"},
        {"label": "x", "scopes": []},
        {"label": "x", "scopes": ["root"]},
        {"label": "x", "scopes": ["jobs:read", "jobs:read"]},
        {"label": "x", "scopes": ["jobs:read"], "queues": []},
        {"label": "x", "scopes": ["jobs:read"], "queues": ["NO"]},
        {"label": "x", "scopes": ["jobs:read"], "expires_at": "2001-01-01T00:00:00Z"},
        {"label": "\u202e", "scopes": ["jobs:read"]},
        {"label": "x", "scopes": "jobs:read"},
    ],
)
async def test_what_cannot_be_a_key_is_refused(locked: Api, body: dict[str, Any]) -> None:
    assert (await locked.client.post("/v1/api-keys", json=body)).status_code == 422


async def test_refusals_are_rows_and_a_flood_is_few(each_locked: Api) -> None:
    key = await made(each_locked, "jobs:read")
    async with each_locked.client_with({}) as stranger, with_key(each_locked, key) as reader:
        for _ in range(50):
            await stranger.get("/v1/jobs")
        await reader.post("/v1/api-keys", json={})
    await each_locked.guard.write()
    rows = (await each_locked.env.driver.audit(AuditQuery(action="auth.refused"))).items
    found = {(row.actor, row.outcome, row.target_kind, row.target, row.tenant) for row in rows}
    assert found == {
        ("anonymous", "UNAUTHENTICATED", "auth", None, None),
        (f"ci ({key['id']})", "FORBIDDEN", "key", key["id"], "default"),
    }
    assert '"count": 50' in next(row.details for row in rows if row.actor == "anonymous")
    for n in range(1_000):
        error = DriverUnavailable("x", fix="y")
        each_locked.guard.refused(error, None, address=f"10.0.{n // 250}.{n % 250}", path="/")
    await each_locked.guard.write()
    rows = (await each_locked.env.driver.audit(AuditQuery(action="auth.refused", limit=200))).items
    assert len(rows) == 2 + 11
    assert any(row.outcome == "MORE" and '"count": 990' in row.details for row in rows)


async def test_use_is_noted_beside_the_requests(each_locked: Api) -> None:
    key = await made(each_locked)
    async with with_key(each_locked, key) as client:
        for _ in range(3):
            await client.get("/v1/jobs")
    shown = await each_locked.client.get(f"/v1/api-keys/{key['id']}")
    assert shown.json()["last_used_at"] is None
    await each_locked.guard.write()
    shown = await each_locked.client.get(f"/v1/api-keys/{key['id']}")
    assert shown.json()["last_used_at"] is not None


async def test_a_key_that_ends_makes_none_that_outlasts_it(each_locked: Api) -> None:
    soon, later = "2040-01-01T00:00:00Z", "2040-01-01T00:00:01Z"
    admin = await made(each_locked, "admin", "jobs:read", expires_at=soon)
    lasting = await made(each_locked, "jobs:read")
    async with with_key(each_locked, admin) as client:
        assert (await made(each_locked, "jobs:read", by=client))["expires_at"].startswith("2040-01-01T00:00:00")
        assert (await made(each_locked, "jobs:read", by=client, expires_at=soon))["id"]
        body = {"label": "ci", "scopes": ["jobs:read"], "expires_at": later}
        refused = await client.post("/v1/api-keys", json=body)
        assert code_of(refused) == (403, "FORBIDDEN")
        assert "2040-01-01" in refused.json()["detail"]
        assert code_of(await client.post(f"/v1/api-keys/{lasting['id']}/rotate")) == (403, "FORBIDDEN")
        assert (await client.post(f"/v1/api-keys/{admin['id']}/rotate")).status_code == 200


async def test_a_revoked_key_follows_nothing_any_longer(each_locked: Api) -> None:
    api = each_locked
    key = await made(api)
    job = await api.post()
    async with api.served() as (host, port):
        headers = {"Authorization": f"Bearer {key['token']}"}
        async with (
            httpx.AsyncClient(base_url=f"http://{host}:{port}", headers=headers, timeout=10) as client,
            client.stream("GET", f"/v1/jobs/{job['id']}/events") as stream,
        ):
            chunks = stream.aiter_bytes()
            assert await anext(chunks)
            await api.client.delete(f"/v1/api-keys/{key['id']}")
            async with asyncio.timeout(5):
                async for _ in chunks:
                    pass
            assert (await client.get(f"/v1/jobs/{job['id']}")).status_code == 401


async def test_a_revoked_key_is_named_no_topics_any_longer(each_locked: Api) -> None:
    api = each_locked
    key = await made(api)
    async with api.served() as (host, port):
        headers = {"Authorization": f"Bearer {key['token']}"}
        async with (
            httpx.AsyncClient(base_url=f"http://{host}:{port}", headers=headers, timeout=10) as client,
            client.stream("GET", "/v1/events/stream?topics=queues") as stream,
        ):
            chunks = stream.aiter_text()
            while "queues" not in await anext(chunks):
                pass
            await api.client.delete(f"/v1/api-keys/{key['id']}")
            await api.post()
            async with asyncio.timeout(9):
                assert [chunk async for chunk in chunks if "event:" in chunk] == []


@pytest.mark.parametrize("waits_at", ["result", "enqueue"])
async def test_a_key_that_is_revoked_while_its_request_waits_gets_no_result(each_locked: Api, waits_at: str) -> None:
    api = each_locked
    key = await made(api, "jobs:read", "jobs:write", "payload:read")
    async with api.up(), with_key(api, key) as client, asyncio.TaskGroup() as group:
        if waits_at == "result":
            job = await api.post()
            asked = client.get(f"/v1/jobs/{job['id']}/result", headers={"Prefer": "wait=10"})
        else:
            asked = client.post("/v1/jobs", json={"name": NAME, "payload": {}}, headers={"Prefer": "wait=10"})
        request = group.create_task(asked)
        await waiting(api)
        await api.client.delete(f"/v1/api-keys/{key['id']}")
        await api.finish(Completed(result='{"secret": "swordfish"}'))
        answer = await request
        assert code_of(answer) == (401, "UNAUTHENTICATED")
        assert "swordfish" not in answer.text


async def test_an_unknown_id_takes_as_long_as_a_wrong_secret(locked: Api) -> None:
    """Medians of both in turn, so that what else the machine does falls on both; neither asks the store."""
    key = await made(locked)
    wrong = key["token"][:-64] + "0" * 64
    unknown = f"ol_{'0' * 16}_{'0' * 64}"
    asked = 0
    store = keys_of(locked.env.driver)
    assert store is not None
    plain = store.known

    async def counted() -> tuple[KnownKey, ...]:
        nonlocal asked
        asked += 1
        return await plain()

    times: dict[str, list[int]] = {wrong: [], unknown: []}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "known", counted)
        for _ in range(10_000):
            for token, taken in times.items():
                before = time.perf_counter_ns()
                assert await locked.guard.authenticate(token) is None
                taken.append(time.perf_counter_ns() - before)
    first, second = (statistics.median(taken) for taken in times.values())
    assert abs(first - second) / max(first, second) < 0.1, (first, second)
    assert asked < 200, "reads of the store go with time, not with callers"


async def test_whatever_is_done_to_a_key_leaves_who_did_it_and_why(each_locked: Api) -> None:
    key = await made(each_locked, reason="a new service")
    await each_locked.client.post(f"/v1/api-keys/{key['id']}/rotate", json={"reason": "it was mailed"})
    await each_locked.client.delete(f"/v1/api-keys/{key['id']}", params={"reason": "left"})
    rows = (await each_locked.client.get("/v1/audit", params={"target": key["id"]})).json()["items"]
    assert [(row["action"], row["actor"], row["tenant"], row["reason"]) for row in rows] == [
        ("key.revoke", "bootstrap", "default", "left"),
        ("key.rotate", "bootstrap", "default", "it was mailed"),
        ("key.create", "bootstrap", "default", "a new service"),
    ]
    assert rows[-1]["details"] == {"label": "ci", "scopes": ["jobs:read"]}


async def test_children_of_another_tenant_are_not_named(each_locked: Api) -> None:
    """One that stages or enqueues in a process may name any job as the parent."""
    parent = await each_locked.env.enqueue()
    own = await each_locked.env.enqueue(parent_id=parent)
    await each_locked.env.enqueue(parent_id=parent, tenant="acme")
    steps = await each_locked.client.get(f"/v1/jobs/{parent}/steps")
    assert steps.json()["children"] == [str(own)]
