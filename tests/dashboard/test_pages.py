"""Every other page, with what it lets a person do."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from app.dashboard.app import PLACES
from app.domain.api_key import Identity, Scope
from app.domain.drain import DrainShown
from app.domain.outcome import DeadLettered
from app.domain.queue import QueueChange
from app.domain.state import DeadReason
from tests.dashboard.visitor import Visitor
from tests.http.api import failure
from tests.http.test_schedules import declare
from tests.support.drivers import NAME, QUEUE
from tests.support.outbox import outbox_env

PAGES = ["/", "/jobs", "/queues", "/schedules", "/dead", "/workers", "/types", f"/types/{NAME}", "/events"]
PAGES += ["/outbox", "/webhooks", "/bulk", "/system", "/audit", "/keys", "/docs", "/docs/enqueueJob", "/login"]


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_reads_in_an_empty_store(visitor: Visitor, path: str) -> None:
    page = await visitor.see(path)
    assert page.count("<h1") <= 1
    assert "style=" not in page
    assert re.search(r"<script(?![^>]*\bsrc=)", page) is None, "nothing is inline"
    assert re.search(r"\son[a-z]+=", page) is None


async def test_the_overview_says_how_to_begin(visitor: Visitor) -> None:
    page = await visitor.see("/")
    assert "Enqueue the first job" in page
    assert f'"name": "{NAME}"' in page.replace("&#34;", '"')


async def test_the_overview_says_what_is_wrong(visitor: Visitor) -> None:
    await visitor.api.post()
    page = await visitor.see("/")
    assert 'class="health" data-s="stalled"' in page
    assert "1 jobs wait" in page


# --- bulk operations


async def test_many_are_retried_after_a_count(visitor: Visitor) -> None:
    for _ in range(3):
        await visitor.api.post()
        await visitor.api.finish(DeadLettered(error=failure(), reason=DeadReason.TERMINAL))
    fields = {"action": "retry", "scope": "matching", "q": f"state:dead name:{NAME}"}
    asked = (await visitor.send("/bulk/confirm", fields)).text
    assert "Retry 3 jobs" in asked
    assert 'name="expected" value="3"' in asked
    page = await visitor.act("/bulk", fields | {"expected": "3", "reason": "mended"})
    assert 'role="progressbar"' in page
    assert "mended" in page


async def test_another_number_than_was_shown_is_asked_again(visitor: Visitor) -> None:
    await visitor.api.post()
    fields = {"action": "cancel", "scope": "matching", "q": "created:24h", "expected": "2", "typed": "2"}
    response = await visitor.send("/bulk", fields)
    assert response.status_code == 409
    assert "2 jobs were expected and 1 fit now" in response.text
    assert 'name="expected" value="1"' in response.text


async def test_ending_many_asks_for_their_number(visitor: Visitor) -> None:
    job = await visitor.api.post()
    fields = {"action": "cancel", "id": job["id"]}
    asked = (await visitor.send("/bulk/confirm", fields)).text
    assert "Type 1 to go on" in asked
    response = await visitor.send("/bulk", fields | {"expected": "1"})
    assert response.status_code == 422
    assert (await visitor.api.get(job))["state"] == "ready"
    assert "Cancel 1 jobs" in await visitor.act("/bulk", fields | {"expected": "1", "typed": "1"})


@pytest.mark.parametrize("action", ["retry", "cancel", "delete"])
async def test_nothing_is_done_to_many_without_the_number_that_was_confirmed(visitor: Visitor, action: str) -> None:
    ended = await visitor.api.post()
    await visitor.api.finish(DeadLettered(error=failure(), reason=DeadReason.TERMINAL))
    ready = await visitor.api.post()
    for fields in ({"scope": "matching", "q": ""}, {"id": ended["id"]}, {"id": ready["id"], "expected": ""}):
        response = await visitor.send("/bulk", {"action": action, **fields})
        assert response.status_code == 422
        assert "Confirm the number that is shown" in response.text
    assert [(await visitor.api.get(job))["state"] for job in (ended, ready)] == ["dead", "ready"]


async def test_an_id_is_no_search_over_many(visitor: Visitor) -> None:
    job, _ = await visitor.api.post(), await visitor.api.post()
    for path, more in (("/bulk/confirm", {}), ("/bulk", {"expected": "2", "typed": "2"})):
        fields = {"action": "cancel", "scope": "matching", "q": f"state:ready {job['id']}", **more}
        response = await visitor.send(path, fields)
        assert response.status_code == 422
        assert "an id is no search" in response.text
    assert (await visitor.api.get(job))["state"] == "ready"


@pytest.mark.parametrize("fields", [{}, {"action": "explode"}, {"action": "retry"}, {"action": "retry", "id": "x"}])
async def test_a_selection_that_means_nothing_is_refused(visitor: Visitor, fields: dict[str, str]) -> None:
    assert (await visitor.send("/bulk/confirm", fields)).status_code == 422


async def test_an_operation_is_aborted(visitor: Visitor) -> None:
    job = await visitor.api.post()
    fields = {"action": "cancel", "id": job["id"], "expected": "1", "typed": "1"}
    made = await visitor.send("/bulk", fields)
    path = made.headers["location"].removeprefix("/ui")
    assert "aborted" in await visitor.act(f"{path}/abort")
    assert (await visitor.get("/bulk/01a20d87-0a2c-7ae8-b8a0-c0396c8e24a7")).status_code == 404


# --- dead letters, queues, workers


async def test_dead_letters_are_grouped_and_opened(visitor: Visitor) -> None:
    for code in ("A", "B"):
        await visitor.api.post()
        await visitor.api.finish(DeadLettered(error=failure(code), reason=DeadReason.TERMINAL))
    page = await visitor.see("/dead")
    assert "2 in 2 groups" in page
    link = re.search(r'href="(/ui/dead\?group=[^"]*~A[^"]*)"', page)
    assert link is not None
    opened = (await visitor.browser.get(link[1].replace("&amp;", "&"))).text
    assert opened.count('aria-expanded="true"') == 1
    assert "Latest of 1" in opened
    assert opened.count(">no such shop</span></span></th>") == 2
    assert opened.count('aria-label="Died in the last 24 hours, by the hour: 1, of them 1 in the last hour"') == 2


async def test_old_dead_letters_are_purged(visitor: Visitor) -> None:
    await visitor.api.post()
    await visitor.api.finish(DeadLettered(error=failure(), reason=DeadReason.TERMINAL))
    assert "Deleted 0 dead letters" in await visitor.act("/dead/purge", {"days": "30"})
    assert (await visitor.send("/dead/purge", {"days": "0"})).status_code == 422


async def test_dead_letters_are_not_read_for_every_look_but_after_a_purge(visitor: Visitor) -> None:
    assert "0 in 0 groups" in await visitor.see("/dead")
    await visitor.api.post()
    await visitor.api.finish(DeadLettered(error=failure(), reason=DeadReason.TERMINAL))
    assert "0 in 0 groups" in await visitor.see("/dead")
    assert "1 in 1 groups" in await visitor.act("/dead/purge", {"days": "30"})
    await visitor.env.advance(timedelta(days=31))
    assert "0 in 0 groups" in await visitor.act("/dead/purge", {"days": "30"})


async def test_a_queue_is_paused_limited_and_resumed(visitor: Visitor) -> None:
    await visitor.api.post()
    page = await visitor.act(f"/queues/{QUEUE}/pause", {"reason": "a deploy", "minutes": ""})
    assert "a deploy" in page
    assert "Resume" in page
    await visitor.env.driver.set_queue(QUEUE, QueueChange(is_fair=True, weights={"default": 3, "other": 2}))
    await visitor.act(f"/queues/{QUEUE}/limit", {"concurrency": "2", "max_depth": ""})
    (queue,) = (await visitor.browser.get("/v1/queues")).json()["items"]
    assert (queue["is_paused"], queue["concurrency"], queue["max_depth"]) == (True, 2, None)
    page = await visitor.see(f"/queues/{QUEUE}")
    assert "Its tenants take turns, by weight: <code>default</code> 3" in page
    await visitor.act(f"/queues/{QUEUE}/resume")
    assert (await visitor.browser.get("/v1/queues")).json()["items"][0]["is_paused"] is False
    assert (await visitor.send(f"/queues/{QUEUE}/limit", {"concurrency": "0"})).status_code == 422


async def test_a_worker_is_asked_to_drain(visitor: Visitor) -> None:
    worker = await visitor.env.register()
    assert "asked to drain" in await visitor.act(f"/workers/{worker}/drain")
    assert (await visitor.send("/workers/999/drain")).status_code == 404


async def test_a_worker_that_leaves_shows_what_it_holds_and_others_nothing(visitor: Visitor) -> None:
    held = (await visitor.api.post())["id"]
    claimed = await visitor.api.claim()
    other = (await visitor.api.post())["id"]
    await visitor.api.claim()
    leaving = DrainShown(phase="inflight", reason="SIGTERM", left=timedelta(seconds=20), told=timedelta(seconds=5))
    await visitor.env.driver.show_worker(claimed.token.worker_id, wakeup="listen", drain=leaving)
    page = await visitor.see("/workers")
    assert "in-flight" in page
    drain = page.partition('class="wf held"')[2].partition("</table>")[0]
    assert (held in drain, other in drain) == (True, False)
    assert "<small>of 25 s</small>" in page
    for words in (">told<", ">cancel 23 s, abandon 24 s<", ">gone 25 s<", "abandoned after 24 s"):
        assert words in drain


# --- job types


async def test_a_new_job_is_made_from_its_type(visitor: Visitor) -> None:
    page = await visitor.act(f"/types/{NAME}/enqueue", {"payload": '{"a": 1}', "tags": "x y", "priority": "3"})
    assert "Enqueued" in page
    (job,) = (await visitor.browser.get("/v1/jobs")).json()["items"]
    assert (job["tags"], job["priority"], job["enqueued_by"]) == (["x", "y"], 3, "dev")


async def test_a_payload_that_does_not_fit_comes_back_with_its_form(visitor: Visitor) -> None:
    response = await visitor.send(f"/types/{NAME}/enqueue", {"payload": "{", "tags": "kept"})
    assert response.status_code == 422
    assert 'value="kept"' in response.text
    assert "JSON_INVALID" in response.text


# --- who may


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{'POST' if place.acts else 'GET'} {place.path}")
async def test_a_scope_that_is_missing_is_a_refusal(visitor: Visitor, place: object) -> None:
    assert isinstance(place, type(PLACES[0]))
    token = await visitor.token()
    scopes = frozenset(Scope) - {place.needs}
    limited = Identity(name="limited", tenant="default", scopes=scopes)
    visitor.api.act_as(limited)
    path = "/ui" + re.sub(r"{\w+}", "x", place.path)
    if not isinstance(place.needs, Scope):
        return
    if place.acts:
        response = await visitor.browser.post(path, data={"token": token})
    else:
        response = await visitor.browser.get(path)
    assert response.status_code == 403, response.text
    assert "lacks the scope" in response.text


async def test_a_reader_sees_no_action_and_no_payload(visitor: Visitor) -> None:
    job = await visitor.api.post(payload={"secret": "swordfish"})
    limited = Identity(name="limited", tenant="default", scopes=frozenset({Scope.JOBS_READ}))
    visitor.api.act_as(limited)
    page = await visitor.see(f"/jobs/{job['id']}")
    assert "swordfish" not in page
    assert 'action="/ui/jobs/' not in page
    assert 'class="bulk"' not in await visitor.see("/jobs")


async def test_another_tenants_job_reads_as_an_absent_one(visitor: Visitor) -> None:
    job = await visitor.api.post()
    absent = (await visitor.get("/jobs/01a20d87-0a2c-7ae8-b8a0-c0396c8e24a7")).text
    other = Identity(name="dev", tenant="other", scopes=frozenset(Scope))
    visitor.api.act_as(other)
    response = await visitor.get(f"/jobs/{job['id']}")
    assert response.status_code == 404
    assert "there is no job" in absent
    assert f"there is no job {job['id']}" in response.text
    assert job["id"] not in await visitor.see("/jobs")
    assert (await visitor.send(f"/jobs/{job['id']}/cancel")).status_code == 404


async def test_a_replay_is_of_the_visitors_tenant_alone(visitor: Visitor) -> None:
    visitor.api.act_as(Identity(name="mine", tenant="mine", scopes=frozenset(Scope)))
    async with outbox_env(visitor.env) as outbox:
        mine, other = [await outbox.staged(payload="{", tenant=tenant) for tenant in ("mine", "other")]
        await outbox.publish()
        assert "Staged again: 0" in await visitor.act("/outbox/replay", {"row": str(other)})
        assert "Staged again: 1" in await visitor.act("/outbox/replay", {"all": "yes"})
        assert [row for row, _ in await outbox.quarantined()] == [other] != [mine]


QUEUES = frozenset({"other"})


@pytest.mark.parametrize("place", [place for place in PLACES if place.acts], ids=lambda place: place.path)
async def test_a_key_bound_to_other_queues_changes_nothing(visitor: Visitor, place: object) -> None:
    assert isinstance(place, type(PLACES[0]))
    if place.path in {"/login", "/logout", "/theme", "/columns"}:
        return
    job, token = await visitor.api.post(), await visitor.token()
    made = await visitor.send("/bulk", {"action": "cancel", "id": job["id"], "expected": "1", "typed": "1"})
    bulk_id = made.headers["location"].rpartition("/")[2]
    names = {"job_id": job["id"], "queue": QUEUE, "name": NAME, "bulk_id": bulk_id, "worker_id": "1"}
    names |= {"webhook_id": f"wh_{'0' * 16}", "key_id": "0" * 16}
    bound = Identity(name="bound", tenant=None, scopes=frozenset(Scope), queues=QUEUES)
    visitor.api.act_as(bound)
    fields = {"token": token, "action": "cancel", "scope": "matching", "q": f"queue:{QUEUE}", "payload": "{}"}
    response = await visitor.browser.post("/ui" + place.path.format(**names), data=fields)
    assert response.status_code == 403, response.text[:400]


# --- schedules


async def test_a_schedule_is_fired_paused_and_resumed_on_its_page(visitor: Visitor) -> None:
    await declare(visitor.api)
    assert "nightly" in await visitor.see("/schedules")
    page = await visitor.act("/schedules/nightly/fire", {"reason": "they ask for it"})
    assert "reports.make" in page, "it leads to the job"
    assert "Of the last 1 fired 1, skipped 0" in await visitor.see("/schedules")
    page = await visitor.act("/schedules/nightly/pause", {"reason": "month end"})
    assert "month end" in page
    assert "month end" not in await visitor.act("/schedules/nightly/resume")
    rows = (await visitor.api.client.get("/v1/audit")).json()["items"]
    assert [(row["action"], row["reason"]) for row in rows] == [
        ("schedule.resume", None),
        ("schedule.pause", "month end"),
        ("schedule.fire", "they ask for it"),
    ]
