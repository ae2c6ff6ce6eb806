"""What is secret is nowhere but where it was handed out, what is sent is a value and no part of a statement."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.domain.outcome import Completed
from tests.http.api import KEY, MASTERS, Api, code_of, dead, job_type
from tests.support.drivers import NAME, PostgresEnv, postgres_env

CANARY = "CANARY-5d1c"
_TABLES = (
    "select c.relname::text as name from pg_class c where c.relnamespace = 'outlast'::regnamespace and relkind = 'r'"
)
_STRICT = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 5}}, "additionalProperties": False}

ODD = (
    "' or '1'='1",
    "'; drop table outlast.job; --",
    "x') union select 1 --",
    "\\' or 1=1 --",
    "$1",
    "%s",
    ":name",
    "{0}",
    "%",
    "_",
    "a%b_c\\",
    "(a+)+$",
    "E'\\x27'",
    "pg_sleep(9)",
    "${jndi:ldap://x}",
    "$.payload ? (@ > 1)",
    "/* */",
    "\u02bc or 1=1",
)


@pytest.fixture
async def kept(database_url: str) -> AsyncIterator[Api]:
    """The service with keys, over PostgreSQL."""
    async with postgres_env(database_url) as env:
        made = Api(env, key=KEY)
        await env.driver.publish_job_types([job_type()])
        async with made.client:
            yield made


async def dumped(api: Api) -> dict[str, str]:
    """Give everything that the store has, by table."""
    assert isinstance(api.env, PostgresEnv)
    driver: Any = api.env.driver

    async def read(conn: Any) -> dict[str, str]:
        names = [row["name"] for row in await conn.fetch(_TABLES)]
        sql = {name: f"select coalesce(json_agg(t)::text, '') from outlast.\"{name}\" t" for name in names}
        return {name: await conn.fetchval(each) for name, each in sql.items()}

    found: dict[str, str] = await driver._db.run(read)
    return found


def said(api: Api) -> str:
    """Give everything that was logged."""
    return repr([api.probe.of(event) for event in set(api.probe.names())])


@pytest.mark.postgres
async def test_a_dump_of_the_database_opens_nothing(kept: Api) -> None:
    """Keys are kept as digests, secrets of webhooks not at all; request keys keep no body beside them."""
    key = (await kept.client.post("/v1/api-keys", json={"label": "ci", "scopes": ["jobs:write", "operate"]})).json()
    turned = (await kept.client.post(f"/v1/api-keys/{key['id']}/rotate", json={"overlap_ms": 60_000})).json()
    hook = {"label": "shop", "url": "https://hooks.example.com/jobs"}
    webhook = (await kept.client.post("/v1/webhooks", json=hook)).json()
    again = (await kept.client.post(f"/v1/webhooks/{webhook['id']}/rotate", json={})).json()
    for token in (key["token"], turned["token"]):
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": '"once"'}
        async with kept.client_with(headers) as client:
            await client.post("/v1/jobs", json={"name": NAME, "payload": {}, "callback": {"secret_id": webhook["id"]}})
    await kept.finish(Completed(result="{}"))
    await kept.guard.write()
    tables = await dumped(kept)
    everything = json.dumps(tables)
    secrets = [token.rpartition("_")[2] for token in (key["token"], turned["token"])]
    for made in (webhook["secret"], again["secret"]):
        plain = made.removeprefix("whsec_")
        secrets += [plain, base64.b64decode(plain).hex()]
    for secret in (*secrets, KEY, "m" * 32):
        assert len(secret) >= 32
        assert secret not in everything, [name for name, rows in tables.items() if secret in rows]
        assert secret not in said(kept)
    assert key["id"] in tables["api_key"]
    assert MASTERS.newest in tables["webhook"], "which master key it was is known by a name that says nothing of it"


@pytest.mark.postgres
async def test_a_payload_is_where_payloads_are_and_nowhere_else(kept: Api) -> None:
    job = await kept.post(payload={"card": CANARY}, idempotency_key="order:1")
    for reason in ("first", "second"):
        await kept.client.post(f"/v1/jobs/{job['id']}/cancel", json={"reason": reason})
        await kept.client.post(f"/v1/jobs/{job['id']}/retry", json={"reason": reason})
    await kept.client.post(f"/v1/jobs/{job['id']}/duplicate", headers={"Idempotency-Key": '"1"'})
    tables = await dumped(kept)
    assert {name for name, rows in tables.items() if CANARY in rows} == {"job"}
    assert CANARY not in (await kept.client.get("/metrics")).text
    assert CANARY not in said(kept)


_FILTERS = ("name", "queue", "error_code", "tenant", "state", "sort", "cursor", "include")
OTHERS = (
    *(("/v1/jobs", name) for name in _FILTERS),
    *(("/v1/audit", "actor"), ("/v1/audit", "target"), ("/v1/events", "key"), ("/v1/slots", "name")),
)


async def test_what_is_looked_for_is_a_value_and_no_part_of_a_statement(each_api: Api) -> None:
    jobs = {odd: await each_api.post(tags=[odd], idempotency_key=odd, meta={"x": odd}) for odd in ODD}
    for odd, job in jobs.items():
        for name in ("tag", "tag_all", "key"):
            found = await each_api.client.get("/v1/jobs", params={name: odd, "count": "true"})
            assert [each["id"] for each in found.json()["items"]] == [job["id"]], (name, odd)
            assert found.json()["count"]["value"] == 1
        for path, name in OTHERS:
            response = await each_api.client.get(path, params={name: odd})
            assert response.status_code in {400, 403, 422} or not response.json().get("items"), (path, name, odd)
    assert len((await each_api.client.get("/v1/jobs")).json()["items"]) == len(ODD)


# Each refused for something else, with a password where the parser does not look for one, or says what it found.
HOOKS = (
    f"https://user:{CANARY}@hooks.example.com/",
    f"https://user:{CANARY}#x@hooks.example.com/",
    f"https://user:{CANARY}/x@hooks.example.com/",
    f"https://user:{CANARY}?x@hooks.example.com/",
    f"https://user:{CANARY}%40hooks.example.com/",
    f"https://user:x/-{CANARY}@hooks.example.com/",
    f"https://user:x#-{CANARY}@hooks.example.com/",
    f"https://{CANARY}#x@hooks.example.com/",
    f"https://{CANARY}:1#x@hooks.example.com/",
    f"http:user:{CANARY}@hooks.example.com/",
    f"{CANARY}:x@hooks.example.com",
    f"https:/user:{CANARY}@hooks.example.com/",
    f"https://user:{CANARY}@[::1/",
    f"https://[{CANARY}]/",
    f"https://a b@{CANARY}@127.0.0.1/#{CANARY}",
    f"http://hooks.example.com/?token={CANARY}",
    f"http://hooks.example.com/hooks-{CANARY}",
    f"ftp://hooks.example.com/hooks-{CANARY}",
    f"https://127.0.0.1/hooks-{CANARY}",
    f"https://hooks.example.com/hooks-{CANARY}#x",
    f"https://hooks.example.com:99999/hooks-{CANARY}",
    f"https://hooks.example.com/hooks {CANARY}",
    f"hooks-{CANARY}",
)

REFUSED: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/v1/jobs", {"name": NAME, "payload": {"n": CANARY}}),
    ("POST", "/v1/jobs", {"name": NAME, "payload": {CANARY: 1}}),
    ("POST", "/v1/jobs", {"name": NAME, "payload": {"n": 9_007_199}}),
    ("POST", "/v1/jobs", {"name": NAME, "payload": {}, "priority": CANARY}),
    ("POST", "/v1/jobs", {"name": NAME, "payload": {}, "meta": {"x": [CANARY]}}),
    ("POST", "/v1/jobs", {"name": NAME, "payload": {}, "run_at": CANARY}),
    ("POST", "/v1/jobs", {"name": NAME, "payload": {}, "tags": CANARY}),
    ("POST", "/v1/jobs", {"name": NAME, "payload": {}, "secret": CANARY}),
    ("POST", "/v1/job-batches", {"items": [{"name": NAME, "payload": {"n": CANARY}}]}),
    ("POST", "/v1/events", {"name": "order.placed", "key": ["x"], "payload": CANARY}),
    ("POST", "/v1/api-keys", {"label": 7, "scopes": ["jobs:read"], "token": CANARY}),
    *(("POST", "/v1/webhooks", {"label": "x", "url": url}) for url in HOOKS),
    ("PATCH", "/v1/queues/mail", {"concurrency": CANARY}),
    ("POST", "/v1/bulk-operations", {"action": "cancel", "selector": {"filter": {"state": [CANARY]}}}),
)


@pytest.mark.parametrize(("method", "path", "body"), REFUSED)
async def test_a_refusal_does_not_repeat_what_it_refuses(api: Api, method: str, path: str, body: Any) -> None:
    """Whatever was sent by mistake is in no log of who sent it because we said it again."""
    await api.env.driver.publish_job_types([job_type(schema=_STRICT)])
    response = await api.client.request(method, path, json=body, headers={"If-Match": "*"})
    assert 400 <= response.status_code < 500, response.text
    assert CANARY.lower() not in response.text.replace(f"/{CANARY}", "").lower()
    assert "9007199" not in response.text.replace("_", "")
    assert CANARY not in said(api)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://Hooks.example.com/a?b", "the address http://hooks.example.com:80 is not https"),
        (
            "https://example.com:8443/a#b",
            "the address https://example.com:8443 has a fragment, which is never sent",
        ),
        ("https://user:12345/x@h/#y", "the address has a fragment, which is never sent"),
        ("https://user:word#x@h/", "the address has no readable port"),
        ("https://[::1/", "the address cannot be read"),
        ("ftp://hooks.example.com/", "the address is not https"),
    ],
)
async def test_of_a_refused_address_no_more_is_said_than_where_it_leads(api: Api, url: str, said: str) -> None:
    response = await api.client.post("/v1/webhooks", json={"label": "x", "url": url})
    assert (response.json()["code"], response.json()["detail"]) == ("CALLBACK_REFUSED", said)


async def test_who_may_only_enqueue_is_not_told_a_webhooks_address(api: Api) -> None:
    hook = {"label": "shop", "url": f"https://hooks.example.com:8443/{CANARY}?token={CANARY}"}
    webhook = (await api.client.post("/v1/webhooks", json=hook)).json()
    callback = {"secret_id": webhook["id"], "url": "https://elsewhere.example.com/"}
    response = await api.client.post("/v1/jobs", json={"name": NAME, "payload": {}, "callback": callback})
    assert code_of(response) == (422, "CALLBACK_REFUSED")
    assert "https://hooks.example.com:8443," in response.json()["fix"]
    assert CANARY not in response.text


async def test_errors_of_attempts_are_shown_and_named_nowhere_else(api: Api) -> None:
    job = await api.post(payload={"card": CANARY})
    await api.finish(dead())
    assert CANARY in (await api.client.get(f"/v1/jobs/{job['id']}")).text
    for path in (
        "/v1/jobs",
        "/v1/dead-letters",
        "/v1/audit",
        "/v1/queues",
        "/v1/stats",
        f"/v1/jobs/{job['id']}/attempts",
    ):
        assert CANARY not in (await api.client.get(path)).text, path
