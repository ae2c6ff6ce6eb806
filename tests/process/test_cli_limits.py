"""Limits from the command line."""

from __future__ import annotations

import asyncio
import json
from uuid import UUID

import pytest

from app.cli.acting import actor
from app.domain.job import JobId, LimitKey
from app.domain.limit import DEFAULT_LIMIT
from app.domain.snapshot import JobTypeDoc
from app.drivers.protocol import ClaimRequest, QueueShare
from tests.process.conftest import Outlast
from tests.support.drivers import NAME, QUEUE, new_job, new_worker
from tests.support.store import store_on

pytestmark = [pytest.mark.postgres]


@pytest.fixture
def holder(outlast: Outlast, database_url: str) -> JobId:
    """A cancelled job whose body has not ended, on a limit of one, and a job that waits for its slot."""
    policy = {"limits": [{"name": DEFAULT_LIMIT, "n": 1, "key": None}]}
    doc = JobTypeDoc(name=NAME, code_version="1", document=json.dumps({"name": NAME, "policy": policy}))

    async def hold() -> JobId:
        async with store_on(database_url) as store:
            await store.driver.publish_job_types([doc])
            jobs = [new_job(limits=(LimitKey(DEFAULT_LIMIT, ""),)) for _ in range(2)]
            await store.driver.enqueue_many(jobs)
            worker = await store.driver.register_worker(new_worker())
            shares = (QueueShare(queue=QUEUE, room=1),)
            request = ClaimRequest(worker_id=worker, shares=shares, names=frozenset({NAME}), room=1)
            (held,) = (await store.driver.admit(request)).jobs
            await store.driver.cancel(held.token.job_id, reason="stop")
            return JobId(UUID(str(held.token.job_id)))

    return asyncio.run(hold())


def test_limits_are_listed_set_and_given_back_to_the_code(outlast: Outlast, database_url: str, holder: JobId) -> None:
    cli = outlast.on(database_url)
    rows = cli("limits", "list").out.splitlines()
    assert rows[1].split() == [NAME, "limit", "1", "1", "-", "-", "1", "1"]
    (document,) = cli("limits", "set", NAME, "limit", "3", "--reason", "more room", "--json").documents()
    assert (document["n"], document["declared"], document["set_by"]) == (3, 1, actor())
    (document,) = cli("limits", "set", NAME, "limit", "declared", "--json").documents()
    assert (document["n"], document["set_by"]) == (1, None)
    rows = cli("audit", "list", "--target", f"{NAME}/limit").out.splitlines()
    assert ["limit.set" in row for row in rows[1:]] == [True, True]
    assert "NOT_FOUND" in cli("limits", "set", NAME, "other", "3", code=4).err


def test_a_slot_whose_body_does_not_end_is_shown_and_taken_back(
    outlast: Outlast, database_url: str, holder: JobId
) -> None:
    cli = outlast.on(database_url)
    (slot,) = cli("limits", "slots", "--json").documents()
    assert (slot["job_id"], slot["is_open"]) == (str(holder), False)
    (taken,) = cli("limits", "release", str(holder), "--reason", "it hangs", "--json").documents()
    assert taken["job_id"] == str(holder)
    assert cli("limits", "slots").err.strip() == "no slots are held"
    assert "NOT_FOUND" in cli("limits", "release", str(holder), code=4).err
