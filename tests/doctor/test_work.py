from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from app.cli.move import without_user as where
from app.control.doctor.finding import Finding, Level, Limits
from app.control.moving import MoveControl
from app.domain.audit import Acting
from app.domain.explain import explain
from app.domain.moving import Bucket
from app.domain.reason import ReasonCode
from app.drivers.postgres.driver import PostgresDriver
from app.drivers.protocol import ClaimRequest, QueueShare
from app.drivers.reading import ListQuery
from app.jobs.handle import job
from app.observability.metrics import Metrics
from app.observability.telemetry import Telemetry
from app.outbox.passes import SharedPasses
from app.outbox.relay import Relay, RelayOptions
from app.worker.options import parse_queues
from tests.doctor.clinic import Clinic
from tests.roles.harness import QUICK, Bench, working
from tests.support.drivers import new_job, new_worker

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(60)]


BY = Acting(actor="tests")


@job("shop.import")
async def shop_import() -> None: ...


@job("shop.report")
async def shop_report() -> None: ...


@pytest.fixture
async def driver(clinic: Clinic) -> AsyncIterator[PostgresDriver]:
    async with clinic.driver() as opened:
        await opened.open()
        yield opened


@pytest.fixture
def clinic(database_url: str) -> Clinic:
    clinic = Clinic(database_url)
    clinic.limits = Limits(lost_lease=timedelta(), outbox_lag=timedelta(seconds=30))
    return clinic


async def until(clinic: Clinic, code: str, level: Level = Level.OK) -> Finding:
    """Give what a check finds once it finds a level: whoever was started works by and by."""
    async with asyncio.timeout(30):
        while (finding := await clinic.find(code)).level is not level:
            pass
    return finding


@asynccontextmanager
async def worker(driver: PostgresDriver, handle: object, queues: str) -> AsyncIterator[Bench]:
    """Run what `outlast worker --queues …` runs."""
    options = replace(QUICK, queues=parse_queues(queues), code_version="2.0.0")
    async with working(handle, driver=driver, options=options) as bench:  # type: ignore[arg-type]  # a handle
        yield bench


async def test_jobs_of_a_queue_that_nobody_serves_get_a_worker(clinic: Clinic, driver: PostgresDriver) -> None:
    await driver.enqueue(new_job("shop.import", queue="mail"))
    finding = await clinic.sick("queues")
    assert finding.facts == {"queues": {"mail": 1}, "served": []}
    (command,) = finding.commands
    assert command == "outlast worker --queues mail"
    async with worker(driver, shop_import, command.rpartition(" ")[2]):
        await until(clinic, "queues")


async def test_jobs_in_a_paused_queue_are_let_go(clinic: Clinic, driver: PostgresDriver) -> None:
    async with worker(driver, shop_import, "mail"):
        await driver.pause_queue("mail", by="ops")
        await driver.enqueue(new_job("shop.import", queue="mail"))
        finding = await clinic.sick("queues", Level.WARN)
        assert finding.commands == ("POST /v1/queues/mail/resume",)
        await driver.resume_queue("mail")
        await until(clinic, "queues")


async def test_jobs_of_a_type_that_no_worker_knows_get_one_that_does(clinic: Clinic, driver: PostgresDriver) -> None:
    async with worker(driver, shop_import, "default"):
        job_id = (await driver.enqueue(new_job("shop.report"))).id
        finding = await until(clinic, "job_types", Level.FAIL)
        assert finding.facts == {"job_types": {"shop.report": 1}}
        assert "OUTLAST_JOBS" in (finding.fix or "")
        situation = await driver.situation(job_id)
        assert situation is not None
        (reason,) = explain(situation).reasons
        assert (reason.code, reason.facts["versions"]) == (ReasonCode.NAME_UNKNOWN, ["2.0.0"])
        async with worker(driver, shop_report, "default"):
            await until(clinic, "job_types")


async def test_a_type_that_is_gone_for_good_is_taken_back(clinic: Clinic, driver: PostgresDriver) -> None:
    async with worker(driver, shop_import, "default"):
        pass
    finding = await clinic.sick("job_types", Level.WARN)
    assert finding.facts == {"job_types": ["shop.import"]}
    await clinic.mend(finding)
    await clinic.well("job_types")


async def test_a_lost_worker_is_taken_over_by_any_that_is_started(clinic: Clinic, driver: PostgresDriver) -> None:
    await driver.enqueue(new_job("shop.import"))
    lost = await driver.register_worker(new_worker(lease_ms=60_000))
    share = QueueShare(queue="default", room=1)
    await driver.claim(ClaimRequest(worker_id=lost, shares=(share,), names=frozenset({"shop.import"}), room=1))
    await clinic.execute(
        "update outlast.worker set lease_until = outlast.clock() - interval '1 minute', lease_ms = 1000"
    )
    finding = await clinic.sick("leases")
    assert finding.facts == {"workers": [str(lost)], "stranded": 1}
    assert finding.commands == ("outlast worker",)
    async with worker(driver, shop_import, "default"):
        await until(clinic, "leases")


async def test_staged_jobs_get_a_relay(clinic: Clinic, driver: PostgresDriver) -> None:
    await stage(driver, clinic)
    finding = await clinic.sick("outbox")
    assert finding.facts["staged"] == 1
    assert finding.commands == ("outlast relay",)
    relay = Relay(
        outbox=driver.outbox,
        new_passes=lambda: SharedPasses(driver.outbox),
        driver=driver,
        telemetry=Telemetry(metrics=Metrics()),
        roll=Random(7).random,
        options=RelayOptions(),
    )
    await relay.start()
    try:
        await until(clinic, "outbox")
    finally:
        await relay.stop()


async def test_a_staged_job_that_was_refused_is_mended_and_replayed(clinic: Clinic, driver: PostgresDriver) -> None:
    await stage(driver, clinic)
    await clinic.execute("update outlast.outbox set payload = 'no json', staged_at = outlast.clock()")
    await driver.outbox.publish(10)
    finding = await clinic.sick("outbox", Level.WARN)
    assert (finding.facts["quarantined"], "of type shop.import" in finding.text) == (1, True)
    assert finding.commands == ("outlast outbox replay --all",)
    await clinic.execute("update outlast.outbox set payload = '{}'")
    assert await driver.outbox.replay() == 1
    await clinic.well("outbox")


async def test_what_a_broken_move_left_is_brought_to_its_end(
    clinic: Clinic, driver: PostgresDriver, make_database: Callable[..., str]
) -> None:
    url = make_database()
    async with Clinic(url).driver() as target:
        await target.open()
        for _ in range(3):
            await driver.enqueue(new_job("shop.import"))
        address = where(url)
        async for _ in MoveControl(driver, target, where=("here", address)).move(queue="default", by=BY):
            break  # taken out
        (first, *_) = await driver.moves.left(await target.moves.identity(), batch=1)
        await target.moves.receive([first])  # and killed
        # More than a page of the audit looks at lies between.
        await clinic.execute(
            "insert into outlast.audit(id, actor, action, target_kind, outcome, details) select gen_random_uuid(),"
            " 'ada', 'queue.pause', 'queue', 'done', '{}' from generate_series(1, 5001)"
        )
        assert (await clinic.well("moves")).facts == {"on_the_way": 3}
        await clinic.execute("update outlast.moving set taken_at = outlast.clock() - interval '2 minutes'")
        finding = await clinic.sick("moves")
        assert f"3 for {make_url(url).database} since" in finding.text
        (command,) = finding.commands
        words = shlex.split(command)
        assert (words[:4], words[5:]) == (["outlast", "jobs", "move", "--to"], ["--queue", "default"])
        assert where(words[4]) == address
        async with Clinic(as_user(words[4], url)).driver() as same:
            await same.open()
            assert await same.moves.identity() == await target.moves.identity()
            await move(driver, same)
        assert (await clinic.well("moves")).facts == {"on_the_way": 0}
        assert len((await target.list(ListQuery())).items) == 3


async def test_what_a_target_may_have_forgotten_is_decided_by_hand(
    clinic: Clinic, driver: PostgresDriver, make_database: Callable[..., str]
) -> None:
    async with Clinic(make_database()).driver() as target:
        await target.open()
        jobs = [(await driver.enqueue(new_job("shop.import"))).id for _ in range(2)]
        await driver.moves.take(Bucket.READY, target=await target.moves.identity())
        await target.enqueue(new_job("shop.import", id=jobs[0]))  # that one was there
        await clinic.execute("update outlast.moving set taken_at = outlast.clock() - interval '90 days'")
        finding = await clinic.sick("moves")
        assert "whether" in finding.text
        connection = await clinic.connect()
        (command,) = finding.commands
        rows = await connection.fetch(command)
        await connection.close()
        assert [row["job_id"] for row in rows] == jobs
        assert "delete its row" in (finding.fix or "")
        await clinic.execute(
            f"delete from outlast.moving where job_id = '{jobs[0]}'",
            f"update outlast.moving set taken_at = now() where job_id = '{jobs[1]}'",
        )
        await move(driver, target)
        await clinic.well("moves")
        assert {view.id for view in (await target.list(ListQuery())).items} == set(jobs)


def as_user(address: str, url: str) -> str:
    """Give an address with the user and the password of another one."""
    known = make_url(url)
    made = make_url(address).set(drivername=known.drivername, username=known.username, password=known.password)
    return made.render_as_string(hide_password=False)


async def move(source: PostgresDriver, target: PostgresDriver) -> None:
    """Do what `outlast jobs move` does."""
    async for _ in MoveControl(source, target, where=("here", "there")).move(queue=None, by=BY):
        pass


async def stage(driver: PostgresDriver, clinic: Clinic) -> None:
    """Stage a job, and let a minute pass."""
    engine = create_async_engine(driver._db.engine.url)  # the application's own
    async with AsyncSession(engine) as session, session.begin():
        await driver.outbox.stage(session, [new_job("shop.import")])
    await engine.dispose()
    await clinic.execute("update outlast.outbox set staged_at = outlast.clock() - interval '1 minute'")
