"""What deploys cost, as the API tells it."""

from __future__ import annotations

from datetime import timedelta

from app.domain.drain import DrainReport
from app.domain.job import WorkerId
from app.domain.ledger import CAUSE_DRAIN
from app.domain.outcome import Interrupted
from app.http.auth import Identity, Scope
from app.http.drain_answers import DeployList
from tests.conformance.test_drains import report, run_of
from tests.http.api import Api
from tests.support.drivers import new_job

SECOND = timedelta(seconds=1)
NAMES = frozenset({"mail.send", "shop.import", "a", "b", "c"})


async def shown(api: Api, query: str = "") -> DeployList:
    response = await api.client.get(f"/v1/deploys{query}")
    assert response.status_code == 200, response.text
    return DeployList.model_validate_json(response.content)


async def test_a_deploy_is_told_by_worker_by_job_type_and_by_job(each_api: Api) -> None:
    env = each_api.env
    worker = await env.register(host="pod-a")
    await env.driver.enqueue_many([new_job("mail.send"), new_job("mail.send"), new_job("shop.import")])
    mail, quick, deaf = await env.claim(worker, names=NAMES)
    await env.close_attempt(mail.token, Interrupted(cause=CAUSE_DRAIN))
    await report(
        env,
        worker,
        run_of(mail, "interrupted"),
        run_of(quick, "completed"),
        run_of(deaf, "abandoned", has_ignored=True),
    )
    await env.advance(2 * SECOND)
    await env.claim_one(await env.register(), names=NAMES)
    (deploy,) = (await shown(each_api)).items
    assert (deploy.worker_id, deploy.host, deploy.reason) == (str(worker), "pod-a", "SIGTERM")
    assert (deploy.completed, deploy.interrupted, deploy.abandoned, deploy.never_acknowledged) == (1, 1, 1, 1)
    assert (deploy.claimed_again, deploy.claimed_again_ms_median, deploy.claimed_again_ms_max) == (1, 2000, 2000)
    mails, shops = deploy.job_types
    assert (mails.job_type, mails.completed, mails.interrupted, mails.claimed_again) == ("mail.send", 1, 1, 1)
    assert (shops.job_type, shops.abandoned, shops.claimed_again_ms_max) == ("shop.import", 1, None)
    assert [(str(cut.job_id), cut.fate, cut.acknowledged, cut.claimed_again_ms) for cut in deploy.cut] == [
        (str(mail.token.job_id), "interrupted", True, 2000),
        (str(deaf.token.job_id), "abandoned", False, None),
    ]


async def test_runs_of_other_tenants_are_counted_and_not_shown(each_api: Api) -> None:
    env = each_api.env
    worker = await env.register()
    await env.driver.enqueue_many([new_job("mail.send", tenant="acme"), new_job("shop.import", tenant="other")])
    claims = await env.claim(worker, names=NAMES)
    await report(env, worker, *(run_of(one, "abandoned", has_ignored=True) for one in claims))
    each_api.act_as(Identity(name="acme", tenant="acme", scopes=frozenset(Scope)))
    seen = await shown(each_api)
    (deploy,) = seen.items
    assert deploy.abandoned == 2
    assert [one.job_type for one in deploy.job_types] == ["mail.send"]
    assert [one.job_type for one in deploy.cut] == ["mail.send"]
    assert [(one.job_type, one.count) for one in seen.never_acknowledged] == [("mail.send", 1)]


async def test_job_types_that_never_read_their_signal_are_ranked(api: Api) -> None:
    env = api.env
    await env.driver.enqueue_many([new_job(name) for name in ("b", "a", "c", "a")])
    for _ in range(2):
        worker = await env.register()
        claims = await env.claim(worker, room=2, names=NAMES)
        await report(env, worker, *(run_of(one, "abandoned", has_ignored=True) for one in claims))
    ranked = (await shown(api)).never_acknowledged
    assert [(one.job_type, one.count) for one in ranked] == [("a", 2), ("b", 1), ("c", 1)]


async def test_reports_are_paged_and_bounded(api: Api) -> None:
    env, workers = api.env, list[WorkerId]()
    for _ in range(3):
        workers.append(await env.register())
        await report(env, workers[-1])
    first = await shown(api, "?limit=2")
    assert [item.worker_id for item in first.items] == [str(workers[2]), str(workers[1])]
    assert first.next_before == str(workers[1])
    rest = await shown(api, f"?limit=2&before={first.next_before}")
    assert ([item.worker_id for item in rest.items], rest.next_before) == ([str(workers[0])], None)
    for query in (
        "limit=0",
        "limit=51",
        "before=0",
        "before=x",
        "before=01",
        "before=%2B1",
        "before=%201",
        "before=\u0661",
        "since=1",
    ):
        assert (await api.client.get(f"/v1/deploys?{query}")).status_code == 422


async def test_a_worker_that_held_nothing_has_a_report_too(api: Api) -> None:
    worker = await api.env.register()
    async with api.env.driver.open_heartbeat() as heartbeat:
        await heartbeat.report_drain(DrainReport(worker_id=worker, reason="asked for by ann", lasted=SECOND, runs=()))
    (deploy,) = (await shown(api)).items
    assert (deploy.reason, deploy.interrupted, deploy.cut, deploy.job_types) == ("asked for by ann", 0, [], [])


async def test_strangers_see_no_deploys(locked: Api) -> None:
    async with locked.client_with({}) as stranger:
        assert (await stranger.get("/v1/deploys")).status_code == 401
