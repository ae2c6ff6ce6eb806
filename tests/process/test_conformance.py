"""The API does what its OpenAPI document says: requests made from the document, answers held against it."""

from __future__ import annotations

import pytest

from tests.support.conformance import made_keys, run, served
from tests.support.processes import Fleet
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(300)]


async def test_the_api_does_what_its_document_says(fleet: Fleet, store: Store) -> None:
    api = await served(fleet)
    issued = (await made_keys(store))["red", "admin"]
    ran = await run(
        api,
        issued.token,
        fleet.folder,
        examples=3,
        seed=20_261_130,
        phases=("examples", "fuzzing"),
        protected=[issued.key.id],
        job_id=str(await store.enqueue("runs.wait", tenant="red")),
        environment=fleet.environment(),
    )
    assert ran.code == 0, ran.said
    assert len(ran.reached()) > 40, ran.counts
