"""The API does what its OpenAPI document says: requests made from the document, answers held against it.

The short form is of one key and a few requests of each operation. The long form is of each set of scopes of two
tenants, 200 requests of each operation and of chains along the links; `CONFORMANCE_EXAMPLES` says another number.
"""

from __future__ import annotations

import os

import pytest

from tests.support.conformance import ALL_PHASES, SCOPES, TENANTS, Ran, made_keys, run, served
from tests.support.processes import Fleet, report
from tests.support.store import Store

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(300)]

SEED = 20_261_130
EXAMPLES = int(os.environ.get("CONFORMANCE_EXAMPLES", "200"))


async def ran(fleet: Fleet, store: Store, whose: tuple[str, str], *, examples: int, phases: tuple[str, ...]) -> Ran:
    """Make requests with one of the keys; the job of the document's examples is one of its tenant's."""
    api = await served(fleet)
    issued = (await made_keys(store))[whose]
    job_id = await store.enqueue("runs.wait", tenant=whose[0])
    found = await run(
        api,
        issued,
        fleet.folder,
        examples=examples,
        seed=SEED,
        phases=phases,
        job_id=str(job_id),
        environment=fleet.environment(),
    )
    report(found.said)
    return found


@pytest.mark.long
async def test_the_api_does_what_its_document_says(fleet: Fleet, store: Store) -> None:
    found = await ran(fleet, store, ("red", "admin"), examples=3, phases=("examples", "fuzzing"))
    assert found.code == 0, found.said
    assert len(found.reached()) > 40, found.counts


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("phase", ALL_PHASES)
@pytest.mark.parametrize("scopes", SCOPES)
@pytest.mark.parametrize("tenant", TENANTS)
async def test_the_api_does_what_its_document_says_whoever_asks(
    fleet: Fleet, store: Store, tenant: str, scopes: str, phase: str
) -> None:
    found = await ran(fleet, store, (tenant, scopes), examples=EXAMPLES, phases=(phase,))
    assert found.code == 0, found.said
    assert found.reached(), found.counts
