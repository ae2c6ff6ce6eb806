"""The header `Idempotency-Key`: the first answer again, over each driver."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from app.domain.outcome import Completed
from app.domain.request_claim import REQUEST_LEASE
from tests.http.api import Api, code_of, dead
from tests.support.drivers import NAME, MemoryEnv, PostgresEnv

KEY = {"Idempotency-Key": '"8e03978e"'}
JOB = {"name": NAME, "payload": {"n": 1}}
_DAY = timedelta(hours=24)


async def _jobs(api: Api) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await api.client.get("/v1/jobs")).json()["items"]
    return items


async def test_a_repeated_request_gets_the_first_answer_and_does_nothing(each_api: Api) -> None:
    first = await each_api.client.post("/v1/jobs", json=JOB, headers=KEY)
    again = await each_api.client.post("/v1/jobs", json=JOB, headers=KEY)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.content == first.content
    kept = ("location", "etag", "content-type")
    assert [again.headers[name] for name in kept] == [first.headers[name] for name in kept]
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert len(await _jobs(each_api)) == 1


async def test_the_answer_is_the_first_one_also_when_the_job_has_gone_on(each_api: Api) -> None:
    first = await each_api.client.post("/v1/jobs", json=JOB, headers=KEY)
    await each_api.finish()
    again = await each_api.client.post("/v1/jobs", json=JOB, headers=KEY)
    assert again.json() == first.json()
    assert again.json()["state"] == "ready"


async def _kept(api: Api) -> str:
    """Give everything that is kept of requests, as text."""
    env = api.env
    if isinstance(env, PostgresEnv):
        async with env.engine.connect() as connection:
            return str((await connection.exec_driver_sql("select r::text from outlast.request r")).all())
    assert isinstance(env, MemoryEnv)
    return str([(row.answer, row.effect) for row in env.memory._store.requests.values()])


async def test_what_a_job_holds_is_kept_with_the_job_alone(each_api: Api) -> None:
    sent = {"name": NAME, "payload": {"card": "CANARY-1", "n": 2**60}, "meta": {"who": "CANARY-2"}}
    first = await each_api.client.post("/v1/jobs", json=sent, headers=KEY)
    path = f"/v1/jobs/{first.json()['id']}"
    await each_api.finish(Completed(result='{"x": "CANARY-3"}'))
    cancelled = await each_api.client.post(f"{path}/cancel", headers=KEY)
    assert cancelled.json()["result"] == {"x": "CANARY-3"}
    assert "CANARY" not in await _kept(each_api)
    assert (await each_api.client.post("/v1/jobs", json=sent, headers=KEY)).content == first.content
    assert (await each_api.client.post(f"{path}/cancel", headers=KEY)).content == cancelled.content
    assert (await each_api.client.delete(path)).status_code == 204
    for asked, before in ((("/v1/jobs", sent), first), ((f"{path}/cancel", None), cancelled)):
        again = await each_api.client.post(asked[0], json=asked[1], headers=KEY)
        assert again.status_code == before.status_code
        assert again.headers["idempotency-replayed"] == "true"
        assert again.json() == before.json() | {"payload": None, "meta": None, "result": None}


async def test_a_key_with_another_body_is_refused(each_api: Api) -> None:
    await each_api.client.post("/v1/jobs", json=JOB, headers=KEY)
    other = await each_api.client.post("/v1/jobs", json=JOB | {"payload": {"n": 2}}, headers=KEY)
    assert code_of(other) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert len(await _jobs(each_api)) == 1


async def test_a_key_is_of_one_method_and_path(each_api: Api) -> None:
    job = (await each_api.client.post("/v1/jobs", json=JOB, headers=KEY)).json()
    event = await each_api.client.post("/v1/events", json={"name": "a.b", "key": "1"}, headers=KEY)
    assert event.status_code == 202
    cancelled = await each_api.client.post(f"/v1/jobs/{job['id']}/cancel", headers=KEY)
    assert cancelled.json()["verdict"] == "cancelled_before_start"


async def test_a_refused_request_leaves_its_key_free(each_api: Api) -> None:
    wrong = await each_api.client.post("/v1/jobs", json={"name": "nobody.knows", "payload": {}}, headers=KEY)
    assert code_of(wrong) == (404, "JOB_UNKNOWN")
    right = await each_api.client.post("/v1/jobs", json=JOB, headers=KEY)
    assert right.status_code == 201
    assert "idempotency-replayed" not in right.headers


async def test_after_a_day_the_key_is_new(each_api: Api) -> None:
    first = await each_api.client.post("/v1/jobs", json=JOB, headers=KEY)
    await each_api.env.advance(_DAY)
    later = await each_api.client.post("/v1/jobs", json=JOB | {"payload": {"n": 2}}, headers=KEY)
    assert later.status_code == 201
    assert later.json()["id"] != first.json()["id"]


@pytest.mark.parametrize(
    "value", ["", '""', '"open', 'a"b', '"a', "a b", '"' + "k" * 256 + '"', "k" * 256, '"a", "b"', '"   "', "ä"]
)
async def test_what_is_no_key_is_refused(api: Api, value: str) -> None:
    sent = {"Idempotency-Key": value.encode("latin-1")}
    response = await api.client.post("/v1/jobs", json=JOB, headers=sent)  # type: ignore[arg-type]  # bytes are sent
    assert code_of(response) == (400, "REQUEST_INVALID")
    assert await _jobs(api) == []


async def test_a_header_that_is_sent_twice_is_refused(api: Api) -> None:
    sent = [("Idempotency-Key", '"a"'), ("Idempotency-Key", '"b"')]
    response = await api.client.post("/v1/jobs", json=JOB, headers=sent)
    assert code_of(response) == (400, "REQUEST_INVALID")


async def test_a_bare_key_is_the_quoted_one(api: Api) -> None:
    first = await api.client.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "8e03978e"})
    again = await api.client.post("/v1/jobs", json=JOB, headers=KEY)
    assert again.content == first.content


async def test_of_many_at_once_one_does_it(each_api: Api) -> None:
    answers = await asyncio.gather(
        *(each_api.client.post("/v1/jobs", json=JOB, headers=KEY) for _ in range(50)),
    )
    assert len(await _jobs(each_api)) == 1
    done = [answer for answer in answers if answer.status_code == 201]
    refused = [answer for answer in answers if answer.status_code != 201]
    assert done
    assert {code_of(answer) for answer in refused} <= {(409, "IDEMPOTENCY_IN_FLIGHT")}
    assert all(answer.headers["retry-after"] == "1" for answer in refused)
    assert len({answer.json()["id"] for answer in done}) == 1


class DiedError(BaseException):
    """The process is gone."""


async def test_a_process_that_dies_after_the_effect_leaves_the_answer_to_the_next_try(
    each_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object) -> None:
        raise DiedError

    with monkeypatch.context() as patched:
        patched.setattr(each_api.services.requests, "answer", die)
        with pytest.raises(DiedError):
            await each_api.client.post("/v1/jobs", json=JOB, headers=KEY)
    (job,) = await _jobs(each_api)
    again = await each_api.client.post("/v1/jobs", json=JOB, headers=KEY)
    assert (again.status_code, again.json()["id"]) == (201, job["id"])
    third = await each_api.client.post("/v1/jobs", json=JOB, headers=KEY)
    assert third.content == again.content
    assert third.headers["idempotency-replayed"] == "true"
    assert len(await _jobs(each_api)) == 1


async def test_a_process_that_dies_before_the_effect_holds_the_key_for_its_lease(
    each_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object, **__: object) -> None:
        raise DiedError

    with monkeypatch.context() as patched:
        patched.setattr(each_api.services.jobs, "enqueue", die)
        with pytest.raises(DiedError):
            await each_api.client.post("/v1/jobs", json=JOB, headers=KEY)
    held = await each_api.client.post("/v1/jobs", json=JOB, headers=KEY)
    assert code_of(held) == (409, "IDEMPOTENCY_IN_FLIGHT")
    assert held.headers["retry-after"] == "1"
    await each_api.env.advance(REQUEST_LEASE)
    assert (await each_api.client.post("/v1/jobs", json=JOB, headers=KEY)).status_code == 201
    assert len(await _jobs(each_api)) == 1


async def test_a_retry_that_was_answered_is_not_done_again(each_api: Api) -> None:
    job = await each_api.post()
    await each_api.finish(dead())
    path = f"/v1/jobs/{job['id']}/retry"
    first = await each_api.client.post(path, headers=KEY)
    assert first.status_code == 200
    await each_api.finish(dead())
    again = await each_api.client.post(path, headers=KEY)
    assert again.content == first.content
    assert (await each_api.get(job))["state"] == "dead"


@pytest.mark.parametrize("what", ["retry", "cancel", "run-now", "duplicate", "fork", "delete", "patch"])
async def test_an_action_whose_answer_was_lost_is_told_again(
    each_api: Api, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    job = await each_api.post(**({"delay_ms": 60_000} if what in {"run-now", "patch", "cancel"} else {}))
    if what in {"retry", "delete"}:
        await each_api.finish(dead())

    async def ask() -> Any:
        path = f"/v1/jobs/{job['id']}"
        if what == "delete":
            return await each_api.client.delete(path, headers=KEY)
        if what == "patch":
            headers = KEY | {"If-Match": f'"{job["version"]}"'}
            return await each_api.client.patch(path, json={"priority": 1}, headers=headers)
        return await each_api.client.post(f"{path}/{what}", headers=KEY)

    async def die(*_: object) -> None:
        raise DiedError

    with monkeypatch.context() as patched:
        patched.setattr(each_api.services.requests, "answer", die)
        with pytest.raises(DiedError):
            await ask()
    before = len(await _jobs(each_api))
    again = await ask()
    expected = {"delete": 204, "duplicate": 201, "fork": 201}.get(what, 200)
    assert again.status_code == expected, again.text
    verdict = {"cancel": "cancelled_before_start", "run-now": "made_ready"}.get(what)
    assert verdict is None or again.json()["verdict"] == verdict
    assert len(await _jobs(each_api)) == before
    rows = (await each_api.client.get("/v1/audit")).json()["items"]
    assert len(rows) == 1


async def test_an_event_is_emitted_once(each_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def die(*_: object) -> None:
        raise DiedError

    event = {"name": "order.approved", "key": "1", "payload": {}}
    with monkeypatch.context() as patched:
        patched.setattr(each_api.services.requests, "answer", die)
        with pytest.raises(DiedError):
            await each_api.client.post("/v1/events", json=event, headers=KEY)
    again = await each_api.client.post("/v1/events", json=event, headers=KEY)
    stored = (await each_api.client.get("/v1/events")).json()["items"]
    assert [each["id"] for each in stored] == [again.json()["id"]]


async def test_a_bulk_operation_is_made_once(each_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await each_api.post()
    asked = {"action": "cancel", "selector": {"ids": [job["id"]]}}

    async def die(*_: object) -> None:
        raise DiedError

    with monkeypatch.context() as patched:
        patched.setattr(each_api.services.requests, "answer", die)
        with pytest.raises(DiedError):
            await each_api.client.post("/v1/bulk-operations", json=asked, headers=KEY)
    again = await each_api.client.post("/v1/bulk-operations", json=asked, headers=KEY)
    made = (await each_api.client.get("/v1/bulk-operations")).json()["items"]
    assert [each["id"] for each in made] == [again.json()["id"]]


async def test_every_other_action_takes_a_key(each_api: Api) -> None:
    for path, body in (
        ("/v1/queues/mail/pause", {"reason": "full"}),
        ("/v1/queues/mail/resume", {}),
        ("/v1/dead-letters/purge", {"older_than_ms": 60_000}),
        ("/v1/drain", {}),
    ):
        first = await each_api.client.post(path, json=body, headers=KEY)
        again = await each_api.client.post(path, json=body, headers=KEY)
        assert again.content == first.content, path
        assert again.headers["idempotency-replayed"] == "true"
