"""Lists and pages of jobs as a person meets them, and every action on one job, without a script."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from app.domain.api_key import Identity, Scope
from app.domain.ledger import FIRST_KEPT, LAST_KEPT
from app.domain.outcome import DeadLettered, Interrupted, Retried
from app.domain.state import DeadReason
from tests.conformance.runs import a_step
from tests.dashboard.visitor import Visitor
from tests.http.api import dead, failure
from tests.support.drivers import NAME, QUEUE

POLYGLOT = """jaVasCript:/*-/*`/*\\`/*'/*"/**/(/* */oNcliCk=alert(1) )//</scRipt/--!>\\x3csVg/<sVg/oNloAd=alert(2)//>"""


async def dead_job(visitor: Visitor) -> str:
    job = await visitor.api.post(payload={"n": 1})
    await visitor.api.finish(DeadLettered(error=failure("BROKEN"), reason=DeadReason.TERMINAL))
    return str(job["id"])


async def state_of(visitor: Visitor, job_id: str) -> str:
    return str((await visitor.api.get({"id": job_id}))["state"])


# --- the list


async def test_the_list_has_every_job_with_its_state_in_its_row(visitor: Visitor) -> None:
    waiting = await visitor.api.post(delay_ms=60_000)
    died = await dead_job(visitor)
    page = await visitor.see("/jobs")
    assert page.index(f'id="job-{died}"') < page.index(f'id="job-{waiting["id"]}"'), "the newest is first"
    assert page.count('data-s="dead"') >= 2
    assert "BROKEN, terminal" in page


@pytest.mark.parametrize(
    ("q", "is_found"),
    [
        *[("", True), ("state:delayed", True), ("state:dead", False), ("state:live", True), (f"queue:{QUEUE}", True)],
        *[("queue:other", False), (f"name:{NAME}", True), ("created:1h", True), ("before:1h", False)],
    ],
)
async def test_a_search_is_in_the_address(visitor: Visitor, q: str, is_found: bool) -> None:
    job = await visitor.api.post(delay_ms=60_000)
    page = await visitor.see(f"/jobs?q={q}")
    assert (f'id="job-{job["id"]}"' in page) is is_found
    for term in q.split():
        assert f'aria-label="Remove {term}"' in page


@pytest.mark.parametrize(
    "q", ["colour:red", "state:sleepy", "created:yesterday", "naked", "queue:", "name:" + "x" * 200]
)
async def test_a_wrong_qualifier_is_explained_and_not_dropped(visitor: Visitor, q: str) -> None:
    page = await visitor.see(f"/jobs?q={q}")
    assert 'role="alert"' in page


async def test_an_id_in_the_search_leads_to_its_job(visitor: Visitor) -> None:
    job = await visitor.api.post()
    response = await visitor.get(f"/jobs?q={job['id']}")
    assert (response.status_code, response.headers["location"]) == (303, f"/ui/jobs/{job['id']}")


async def test_pages_go_on_where_the_last_one_ended(visitor: Visitor) -> None:
    ids = [(await visitor.api.post(delay_ms=60_000))["id"] for _ in range(30)]
    first = await visitor.see("/jobs?size=25")
    older = re.search(r'href="(/ui/jobs\?[^"]*cursor=[^"]*)" rel="next"', first)
    assert older is not None
    second = (await visitor.browser.get(older[1].replace("&amp;", "&"))).text
    seen = [re.findall(r'id="job-([0-9a-f-]{36})"', page) for page in (first, second)]
    assert seen == [list(reversed(ids))[:25], list(reversed(ids))[25:]]


async def test_a_cursor_that_was_not_given_out_is_refused(visitor: Visitor) -> None:
    assert (await visitor.get("/jobs?cursor=x")).status_code == 400


async def test_nothing_found_names_the_filter_and_the_way_out(visitor: Visitor) -> None:
    page = await visitor.see("/jobs?q=state:held queue:mail")
    assert "<code>state:held</code>" in page
    assert "Drop state:held" in page


# --- the page of a job


async def test_a_waiting_job_says_why(visitor: Visitor) -> None:
    job = await visitor.api.post()
    page = await visitor.see(f"/jobs/{job['id']}")
    assert "Why it is not running" in page
    assert "No worker lives" in page or "no worker" in page.lower()
    assert 'class="stop"' in page


async def test_a_dead_job_shows_its_ledger_and_its_traceback(visitor: Visitor) -> None:
    page = await visitor.see(f"/jobs/{await dead_job(visitor)}")
    assert 'id="attempt-1"' in page
    assert "<b>1 of 25</b>" in page
    assert '<details class="fold" id="trace-1" open>' in page


async def test_what_a_full_ledger_has_let_go_of_is_not_counted_as_if_it_were_there(visitor: Visitor) -> None:
    job_id = await visitor.env.enqueue(max_attempts=200)
    attempts = FIRST_KEPT + LAST_KEPT + 5
    for _ in range(attempts):
        await visitor.api.finish(Retried(error=failure(), delay=timedelta(seconds=1)))
        await visitor.env.advance(timedelta(seconds=2))
        await visitor.env.driver.promote()
    found = re.findall(r'data-l="Budget">(?:<b>|<span class="dim">)([^<]*)<', await visitor.see(f"/jobs/{job_id}"))
    newest = [f"{nth} of 200" for nth in range(attempts, attempts - LAST_KEPT, -1)]
    assert found == [*newest, *["counted"] * FIRST_KEPT]


async def test_an_attempt_says_which_of_the_budget_it_was(visitor: Visitor) -> None:
    job_id = (await visitor.api.post())["id"]
    again = Retried(error=failure(), delay=timedelta(seconds=1))
    for outcome in (again, Interrupted(cause="drain"), again, dead(), again):
        await visitor.api.finish(outcome)
        await visitor.env.advance(timedelta(seconds=2))
        await visitor.env.driver.promote()
        if isinstance(outcome, DeadLettered):
            await visitor.act(f"/jobs/{job_id}/retry", {"mode": "resume"})
    found = re.findall(r'data-l="Budget">(?:<b>|<span class="dim">)([^<]*)<', await visitor.see(f"/jobs/{job_id}"))
    assert found == ["1 of 25", "counted", "counted", "not counted", "counted"], (
        "newest first; a retry gives a new budget"
    )
    claimed = await visitor.api.claim()
    found = re.findall(r"<b>(\d of 25)</b>", await visitor.see(f"/jobs/{job_id}"))
    assert found == ["1 of 25"], "the one that runs is not in the ledger yet"
    await visitor.env.close_attempt(claimed.token, dead())
    found = re.findall(r"<b>(\d of 25)</b>", await visitor.see(f"/jobs/{job_id}"))
    assert found == ["2 of 25", "1 of 25"]


async def test_numbers_of_a_payload_are_as_they_were_sent(visitor: Visitor) -> None:
    content = b'{"name": "%s", "payload": {"id": 9007199254740993, "rate": 1.50}}' % NAME.encode()
    sent = await visitor.browser.post("/v1/jobs", content=content, headers={"content-type": "application/json"})
    page = await visitor.see(f"/jobs/{sent.json()['id']}")
    assert "9007199254740993" in page
    assert "1.50" in page


async def test_stored_text_is_never_markup(visitor: Visitor) -> None:
    job = await visitor.api.post(
        payload={POLYGLOT: POLYGLOT}, tags=[POLYGLOT[:60]], idempotency_key=POLYGLOT, meta={"m": POLYGLOT}
    )
    await visitor.act(f"/jobs/{job['id']}/cancel", {"reason": POLYGLOT})
    for path in (f"/jobs/{job['id']}", "/jobs", "/audit"):
        page = await visitor.see(path)
        assert "<sVg" not in page
        assert "</scRipt" not in page


@pytest.mark.parametrize(("text", "is_link"), [("https://a.example/x", True), ("javascript:alert(1)", False)])
async def test_only_addresses_of_the_web_are_links(visitor: Visitor, text: str, is_link: bool) -> None:
    job = await visitor.api.post(payload={"url": text})
    page = await visitor.see(f"/jobs/{job['id']}")
    assert (f'href="{text}" rel="noopener noreferrer"' in page) is is_link
    assert 'href="javascript:' not in page


async def test_a_job_that_is_not_there_is_a_page_with_its_code(visitor: Visitor) -> None:
    for name in ("nonsense", "01a20d87-0a2c-7ae8-b8a0-c0396c8e24a7"):
        response = await visitor.get(f"/jobs/{name}")
        assert response.status_code == 404
        assert "/problems/JOB_NOT_FOUND" in response.text


async def test_the_raw_job_is_what_the_api_shows(visitor: Visitor) -> None:
    job = await visitor.api.post(payload={"n": 1})
    raw = await visitor.get(f"/jobs/{job['id']}/raw")
    assert raw.headers["content-type"] == "application/json"
    assert raw.json() == await visitor.api.get(job)


# --- actions


async def test_cancel_keeps_its_reason_in_the_audit(visitor: Visitor) -> None:
    job = await visitor.api.post()
    page = await visitor.act(f"/jobs/{job['id']}/cancel", {"reason": "ordered twice"})
    assert "Cancelled before it started" in page
    assert await state_of(visitor, job["id"]) == "cancelled"
    audit = await visitor.see("/audit")
    assert "<code>job.cancel</code>" in audit
    assert "ordered twice" in audit


@pytest.mark.parametrize("mode", ["resume", "fresh"])
async def test_retry_makes_a_dead_job_ready(visitor: Visitor, mode: str) -> None:
    job_id = await dead_job(visitor)
    assert "Ready again" in await visitor.act(f"/jobs/{job_id}/retry", {"mode": mode})
    assert await state_of(visitor, job_id) == "ready"


async def test_what_cannot_be_done_says_why(visitor: Visitor) -> None:
    job = await visitor.api.post()
    response = await visitor.send(f"/jobs/{job['id']}/retry", {"mode": "resume"})
    assert response.status_code == 409
    assert "/problems/JOB_STATE_CONFLICT" in response.text


async def test_run_now_lets_a_delayed_job_start(visitor: Visitor) -> None:
    job = await visitor.api.post(delay_ms=3_600_000)
    assert "Made ready" in await visitor.act(f"/jobs/{job['id']}/run-now")
    assert await state_of(visitor, job["id"]) == "ready"


async def test_an_edit_of_a_stale_page_is_refused(visitor: Visitor) -> None:
    job = await visitor.api.post()
    found = re.search(r'name="version" value="([0-9a-f]+)"', await visitor.see(f"/jobs/{job['id']}"))
    assert found is not None
    fields = {"priority": "2", "version": found[1]}
    assert "Changed" in await visitor.act(f"/jobs/{job['id']}/edit", fields)
    assert (await visitor.api.get(job))["priority"] == 2
    assert (await visitor.send(f"/jobs/{job['id']}/edit", fields | {"priority": "3"})).status_code == 412


@pytest.mark.parametrize("fields", [{"priority": "ten"}, {"priority": "10"}, {"run_at": "tomorrow"}, {}])
async def test_an_edit_that_means_nothing_is_refused(visitor: Visitor, fields: dict[str, str]) -> None:
    job = await visitor.api.post()
    assert (await visitor.send(f"/jobs/{job['id']}/edit", fields)).status_code == 422


async def test_delete_takes_a_job_that_has_ended(visitor: Visitor) -> None:
    job_id = await dead_job(visitor)
    assert "Deleted job" in await visitor.act(f"/jobs/{job_id}/delete")
    assert (await visitor.get(f"/jobs/{job_id}")).status_code == 404


async def test_a_failed_job_runs_again_with_edited_input(visitor: Visitor) -> None:
    job_id = await dead_job(visitor)
    payload = '{"n": 2.50, "gone": null}'
    response = await visitor.send(f"/jobs/{job_id}/duplicate", {"payload": payload})
    new_id = response.headers["location"].partition("/jobs/")[2].partition("?")[0]
    found = await visitor.browser.get(f"/v1/jobs/{new_id}")
    assert found.json()["parent_id"] == job_id
    assert '"payload":{"n": 2.50, "gone": null}' in found.text
    assert (await visitor.send(f"/jobs/{job_id}/duplicate", {"payload": "{"})).status_code == 422


async def test_a_fork_is_a_new_job(visitor: Visitor) -> None:
    job = await visitor.api.post()
    response = await visitor.send(f"/jobs/{job['id']}/fork")
    assert response.status_code == 303
    assert job["id"] not in response.headers["location"]


async def test_an_event_is_sent_from_the_page_of_its_job(visitor: Visitor) -> None:
    job = await visitor.api.post()
    fields = {"name": "order.approved", "key": "1", "payload": '{"by": "you"}'}
    assert "Sent: it ended 0 waits" in await visitor.act(f"/jobs/{job['id']}/event", fields)
    events = await visitor.see("/events")
    assert "order.approved" in events


async def test_ages_are_told_and_never_negative(visitor: Visitor) -> None:
    await visitor.api.post()
    await visitor.env.advance(timedelta(minutes=5))
    assert "-" not in "".join(re.findall(r"<time[^>]*>([^<]*)</time>", await visitor.see("/jobs")))


async def test_values_are_read_of_the_steps_that_are_shown(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.dashboard.pages.job._MOST_STEPS", 2)
    await visitor.api.post()
    held = await visitor.api.claim()
    for number, name in enumerate(("first", "second", "third")):
        assert await visitor.env.driver.record_step(held.token, a_step(name, number))
    page = await visitor.see(f"/jobs/{held.token.job_id}")
    assert "3 recorded" in page
    assert [f"What {name} gave" in page for name in ("first", "second", "third")] == [True, True, False]
    assert page.count("&#34;second&#34;") > 0
    limited = Identity(name="limited", tenant="default", scopes=frozenset({Scope.JOBS_READ}))
    visitor.api.act_as(limited)
    assert "What first gave" not in await visitor.see(f"/jobs/{held.token.job_id}")
