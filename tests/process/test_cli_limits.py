"""Limits and slots from the command line."""

from __future__ import annotations

import asyncio
import json
from uuid import UUID

import pytest

from app.cli.acting import actor
from app.domain.job import JobId, LimitKey
from app.domain.snapshot import JobTypeDoc
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.process.conftest import Outlast
from tests.support.drivers import NAME, QUEUE, new_job, new_worker
from tests.support.store import store_on

pytestmark = [pytest.mark.postgres]

_POLICY = {"limits": [{"name": "limit", "n": 1, "key": None}]}


@pytest.fixture
def holder(database_url: str) -> JobId:
    """A job that holds the only slot, and one that waits for it."""

    async def fill() -> JobId:
        async with store_on(database_url) as store:
            doc = JobTypeDoc(name=NAME, code_version="1", document=json.dumps({"policy": _POLICY}))
            await store.driver.publish_job_types([doc])
            await store.driver.enqueue_many([new_job(limits=(LimitKey("limit", ""),)) for _ in range(2)])
            worker = await store.driver.register_worker(new_worker())
            share = QueueShare(queue=QUEUE, room=2)
            request = ClaimRequest(worker_id=worker, shares=(share,), names=frozenset({NAME}), room=2)
            (held,) = (await store.driver.admit(request)).jobs
            return JobId(UUID(str(held.token.job_id)))

    return asyncio.run(fill())


def test_limits_and_slots_are_listed_and_a_number_is_set(outlast: Outlast, database_url: str, holder: JobId) -> None:
    cli = outlast.on(database_url)
    (limit,) = cli("limits", "list", "--json").documents()
    assert (limit["name"], limit["n"], limit["held"], limit["waiting"]) == (NAME, 1, 1, 1)
    (slot,) = cli("limits", "slots", "--json").documents()
    assert (slot["job_id"], slot["is_open"]) == (str(holder), True)
    (stored,) = cli("limits", "set", NAME, "limit", "3", "--reason", "a sale", "--json").documents()
    assert (stored["n"], stored["declared"], stored["set_by"]) == (3, 1, actor())
    assert cli("limits", "list").out.splitlines()[1].split()[:4] == [NAME, "limit", "3", "1"]
    (again,) = cli("limits", "set", NAME, "limit", "declared", "--json").documents()
    assert (again["n"], again["set_by"]) == (1, None)
    found = cli("audit", "list", "--json").documents()
    assert [row["reason"] for row in found if row["action"] == "limit.set"] == [None, "a sale"]


def test_a_slot_is_taken_back_from_a_job_that_is_over_and_from_no_other(
    outlast: Outlast, database_url: str, holder: JobId
) -> None:
    cli = outlast.on(database_url)
    assert "cancel the job" in cli("limits", "release", str(holder), code=5).err
    cli("jobs", "cancel", str(holder))
    (slot,) = cli("limits", "release", str(holder), "--reason", "hangs", "--json").documents()
    assert slot["job_id"] == str(holder)
    assert "no slots are held" in cli("limits", "slots").err


@pytest.mark.parametrize(
    ("words", "code"), [((NAME, "limit", "few"), 2), ((NAME, "limit", "0"), 2), (("a", "b", "1"), 4)]
)
def test_a_number_that_cannot_be_set_is_refused(
    outlast: Outlast, database_url: str, words: tuple[str, ...], code: int
) -> None:
    assert outlast.on(database_url)("limits", "set", *words, code=code).err
