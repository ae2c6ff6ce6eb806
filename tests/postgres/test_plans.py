"""Plans of the hot statements: prepared while the tables are empty, and kept for the connection's life."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from app.domain.outcome import Completed, Settlement
from app.drivers.postgres import (
    cancel,
    claim,
    drains,
    enqueue_statements,
    heartbeat,
    promote,
    release,
    settle,
    settle_and_claim,
)
from app.drivers.postgres.connect import connect
from app.drivers.postgres.low_water import Stretch
from tests.postgres.arena import Arena
from tests.support.drivers import new_job

pytestmark = pytest.mark.postgres

HOT = {
    "enqueue": enqueue_statements.ENQUEUE,
    "enqueue what asks for nothing special": enqueue_statements.ENQUEUE_PLAIN,
    "claim from one queue": claim.CLAIM_ONE,
    "claim from several queues": claim.CLAIM_MANY,
    "settle": settle.SETTLE,
    "settle what is done": settle.SETTLE_DONE,
    "settle and claim from one queue": settle_and_claim.SETTLE_AND_CLAIM_ONE,
    "settle and claim from several queues": settle_and_claim.SETTLE_AND_CLAIM_MANY,
    "settle what is done and claim from one queue": settle_and_claim.SETTLE_DONE_AND_CLAIM_ONE,
    "settle what is done and claim from several queues": settle_and_claim.SETTLE_DONE_AND_CLAIM_MANY,
    "release": release.RELEASE,
    "reconcile": release.RECONCILE,
    "renew": heartbeat._RENEW,
    "promote": promote._PROMOTE,
    "cancel": cancel._CANCEL,
    "deploy reports": drains._DRAINS,
}
CLAIMS = [verb for verb in HOT if "claim" in verb]
# `queue` has a row per paused queue and `worker` one per process; the rest grows with the work.
GROWING = {"job", "ready", "waiting", "running", "held", "finished", "live_key", "source", "attempt", "expiry"}

# What runs in the whole fleet is little, and this is asked once in a lease.
READ_WHOLE = {"reconcile": {"running"}}


@pytest.fixture
async def session(arena: Arena, database_url: str) -> AsyncIterator[Any]:
    """A session as the driver's, on empty, vacuumed tables, that plans once and for all binds."""
    await arena.fetch("vacuum (analyze)")
    connection = await connect(database_url, application_name="plans")
    await connection.execute("set plan_cache_mode = force_generic_plan")
    yield connection
    await connection.close()


async def plan(session: Any, sql: str) -> list[dict[str, Any]]:
    """Give the nodes of a statement's generic plan."""
    binds = max(int(number) for number in re.findall(r"\$(\d+)", sql))
    await session.execute(f"prepare hot as {sql}")
    found = await session.fetchval(f"explain (format json) execute hot({', '.join(['null'] * binds)})")
    await session.execute("deallocate hot")
    return list(nodes(json.loads(found)[0]["Plan"]))


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from nodes(child)


@pytest.mark.parametrize("verb", HOT)
async def test_no_hot_statement_reads_a_growing_table_from_end_to_end(session: Any, verb: str) -> None:
    scanned = [
        (node["Node Type"], node.get("Relation Name"))
        for node in await plan(session, HOT[verb])
        if node.get("Relation Name") in GROWING - READ_WHOLE.get(verb, set())
        if node["Node Type"] == "Seq Scan" or ("Index" in node["Node Type"] and "Index Cond" not in node)
    ]
    assert scanned == []


@pytest.mark.parametrize("verb", ["settle", "settle what is done"])
async def test_a_settle_reads_claims_in_the_order_of_their_ids(session: Any, verb: str) -> None:
    """The order in which it locks them."""
    found = [node for node in await plan(session, HOT[verb]) if node.get("Relation Name") == "running"]
    assert [(node["Node Type"], node.get("Index Name")) for node in found if "Scan" in node["Node Type"]] == [
        ("Index Scan", "running_pkey")
    ]


@pytest.mark.parametrize("verb", CLAIMS)
async def test_a_claim_deletes_the_very_rows_it_locked(session: Any, verb: str) -> None:
    scans = {node["Node Type"] for node in await plan(session, HOT[verb]) if node.get("Relation Name") == "ready"}
    assert "Tid Scan" in scans


@pytest.mark.parametrize("verb", CLAIMS)
async def test_a_claim_reads_its_queue_in_order_without_sorting_it(session: Any, verb: str) -> None:
    found = [node for node in await plan(session, HOT[verb]) if node.get("Index Name") == "ready_pkey"]
    assert found
    assert all("queue" in node["Index Cond"] and "ROW(rank, seq)" in node["Index Cond"] for node in found)


@pytest.mark.parametrize("verb", ["claim from one queue", "claim from several queues"])
async def test_a_claim_locks_tokens_in_the_order_of_the_index_and_no_more_than_it_takes(
    session: Any, verb: str
) -> None:
    """The index is read right below the lock; a sort between them would lock the whole queue first."""
    (locking,) = [node for node in await plan(session, HOT[verb]) if node["Node Type"] == "LockRows"]
    assert [child["Node Type"] for child in locking["Plans"]] == ["Index Scan"]


@pytest.mark.parametrize(
    ("verb", "table"),
    [("claim from one queue", "ready"), ("claim from several queues", "ready"), ("promote", "waiting")],
)
async def test_rows_are_found_by_their_place_even_where_a_pooler_drops_our_settings(
    session: Any, verb: str, table: str
) -> None:
    await session.execute("set enable_seqscan = on")
    await session.execute("set enable_bitmapscan = on")
    scans = {node["Node Type"] for node in await plan(session, HOT[verb]) if node.get("Relation Name") == table}
    assert "Tid Scan" in scans
    assert "Seq Scan" not in scans


async def test_the_cost_of_a_claim_does_not_grow_with_the_backlog(arena: Arena) -> None:
    """Buffers, not time: the same claim touches about as many pages with 20,000 jobs waiting as with 100."""
    worker = await arena.register()
    binds = (worker, ["default"], [10], [1], 10, True, *claim.columns_of([Stretch("default", -1, 0, 99)]))
    await arena.driver.enqueue_many([new_job() for _ in range(100)])
    small = await _buffers(arena, binds)
    await arena.driver.enqueue_many([new_job() for _ in range(20_000)])
    finished = await arena.claim(worker, room=2000)
    await arena.driver.settle([Settlement(token=claim.token, outcome=Completed()) for claim in finished])
    await arena.fetch("vacuum (analyze)")
    assert await _buffers(arena, binds) < small * 2


async def _buffers(arena: Arena, binds: tuple[object, ...]) -> int:
    """Run a claim under EXPLAIN and take it back; gives the pages it touched."""
    async with arena.holding() as seat:
        found = await seat.connection.fetchval(f"explain (analyze, buffers, format json) {claim.CLAIM_ONE}", *binds)
    top = json.loads(found)[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
