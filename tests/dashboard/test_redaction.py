"""What job types keep back: on pages and over HTTP, and the way around it that leaves a row in the audit."""

from __future__ import annotations

import json

import pytest

from app.domain.api_key import Identity, Scope
from app.domain.outcome import Completed
from app.domain.snapshot import JobTypeDoc
from tests.dashboard.visitor import Visitor
from tests.http.api import job_type
from tests.support.drivers import NAME

PAYLOAD = {"card": {"number": "4111-swordfish"}, "n": 9007199254740993, "apiKey": "marlin"}


@pytest.fixture
async def job(visitor: Visitor) -> str:
    """Give a done job of a type that keeps `card.number` and every `inner` back."""
    document = json.loads(job_type().document)
    document["policy"] = {**document.get("policy", {}), "redact": ["card.number", "**.inner"]}
    await visitor.env.driver.publish_job_types([JobTypeDoc(name=NAME, code_version="2", document=json.dumps(document))])
    made = await visitor.api.post(payload=PAYLOAD)
    await visitor.api.finish(Completed(result='{"a": {"inner": "tuna"}, "b": 1.50}'))
    return str(made["id"])


async def test_a_page_keeps_back_what_the_type_and_telling_names_say(visitor: Visitor, job: str) -> None:
    for path in (f"/jobs/{job}", f"/jobs/{job}/raw"):
        page = (await visitor.get(path)).text
        assert not [word for word in ("swordfish", "marlin", "tuna") if word in page]
        assert "9007199254740993" in page
        assert "1.50" in page
    page = await visitor.see(f"/jobs/{job}")
    assert "<mark>redacted</mark>" in page
    assert '<textarea name="payload"' not in page, "what is not seen is not edited"


async def test_a_reveal_shows_all_once_and_says_who_looked(visitor: Visitor, job: str) -> None:
    response = await visitor.send(f"/jobs/{job}/reveal", {"reason": "a refund"})
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    assert all(word in response.text for word in ("swordfish", "marlin", "tuna"))
    assert '<textarea name="payload"' in response.text
    assert "swordfish" not in await visitor.see(f"/jobs/{job}")
    (row,) = (await visitor.api.client.get("/v1/audit?action=job.reveal")).json()["items"]
    assert (row["actor"], row["reason"], row["target"]["id"], row["tenant"]) == ("dev", "a refund", job, "default")


async def test_duplicates_of_what_is_kept_back_get_it_whole(visitor: Visitor, job: str) -> None:
    await visitor.act(f"/jobs/{job}/duplicate")
    newest = (await visitor.api.client.get("/v1/jobs")).json()["items"][0]["id"]
    assert (await visitor.api.client.post(f"/v1/jobs/{newest}/reveal")).json()["payload"] == PAYLOAD


async def test_nobody_reveals_what_they_may_not_read(visitor: Visitor, job: str) -> None:
    token = await visitor.token()
    for identity, status in (
        (Identity(name="a", tenant=None, scopes=frozenset(Scope) - {Scope.PAYLOAD_READ}), 403),
        (Identity(name="b", tenant=None, scopes=frozenset(Scope) - {Scope.JOBS_READ}), 403),
        (Identity(name="c", tenant=None, scopes=frozenset(Scope), queues=frozenset({"other"})), 403),
        (Identity(name="d", tenant="other", scopes=frozenset(Scope)), 404),
    ):
        visitor.api.act_as(identity)
        assert (await visitor.api.client.post(f"/v1/jobs/{job}/reveal")).status_code == status
        assert (await visitor.browser.post(f"/ui/jobs/{job}/reveal", data={"token": token})).status_code == status
