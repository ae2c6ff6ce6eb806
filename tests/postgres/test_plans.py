"""Plans of the hot statements: prepared while the tables are empty, and kept for the connection's life."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from app.drivers.postgres import (
    call_cycle,
    cancel,
    claim,
    drains,
    due,
    enqueue_statements,
    events,
    fork,
    hand_back,
    heartbeat,
    notes,
    promote,
    reap,
    release,
    run_view,
    settle,
    settle_and_claim,
    settle_runs,
    steps,
    suspend,
    versions,
    waits,
)
from app.drivers.postgres.connect import connect
from tests.postgres.arena import Arena

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
    "promote": promote.PROMOTE,
    "cancel": cancel._CANCEL,
    "drop waits": cancel._DROP_WAITS,
    "fork waits": fork._COPY_WAITS,
    "forget": settle_runs._FORGET,
    "look for a circle of calls": call_cycle.CALLERS_ABOVE,
    "deploy reports": drains._DRAINS,
    "record steps": steps.RECORD,
    "history": run_view.HISTORY,
    "read a run": run_view._RUN,
    "notes": notes.NOTE,
    "fence a suspend": suspend.FENCE,
    "suspend": suspend.SUSPEND,
    "find who waits for an event": events.WAITERS,
    "emit": events.EMIT,
    "find due waits": waits.DUE_WAITS,
    "wake": waits.WAKE,
    "say whether anybody waits for a child": waits.IS_CALLED,
    "find who waits for a child": waits.CALLERS,
    "wake parents": waits.WAKE_PARENTS,
    "sweep waits": waits.SWEEP,
    "hand back": hand_back.HAND,
    "release what is due": versions._RELEASE_DUE,
    "due": due._DUE,
    "events": events._EVENTS,
    "events of a key": events._EVENTS_OF_KEY,
}
CLAIMS = [verb for verb in HOT if "claim" in verb]
# `queue` has a row per queue with a setting and `worker` one per process; the rest grows with the work.
GROWING = {"job", "ready", "waiting", "running", "held", "finished", "live_key", "source", "attempt", "expiry"}
GROWING |= {"step", "wait", "suspended", "event", "progress", "run_line", "audit"}

# What runs in the whole fleet is little, and this is asked once in a lease.
READ_WHOLE = {"reconcile": {"running"}, "due": {"running"}, "events": {"event"}}
# What runs of a queue is counted where the queue lets only so many of its jobs run, and for no other: `test_limits`.
READ_WHOLE |= {verb: {"running"} for verb in (*CLAIMS, "explain")}


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
    assert _read_whole(verb, await plan(session, HOT[verb])) == []


def _read_whole(verb: str, nodes: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (node["Node Type"], node["Relation Name"])
        for node in nodes
        if node.get("Relation Name") in GROWING - READ_WHOLE.get(verb, set())
        if node["Node Type"] == "Seq Scan" or ("Index" in node["Node Type"] and "Index Cond" not in node)
    ]


@pytest.mark.parametrize("verb", ["settle", "settle what is done"])
async def test_a_settle_reads_claims_in_the_order_of_their_ids(session: Any, verb: str) -> None:
    """The order in which it locks them."""
    found = [node for node in await plan(session, HOT[verb]) if node.get("Relation Name") == "running"]
    assert [(node["Node Type"], node.get("Index Name")) for node in found if "Scan" in node["Node Type"]] == [
        ("Index Scan", "running_pkey")
    ]


@pytest.mark.parametrize(
    ("sql", "key"),
    [
        (release.RELEASE, "r.job_id"),
        (release.RECONCILE, "r.job_id"),
        (reap._SURRENDER, "running.job_id"),
        (settle.SETTLE, "k.hash"),
    ],
    ids=["release", "reconcile", "surrender", "keys of a settle"],
)
async def test_locks_are_taken_in_one_order_whatever_the_plan(session: Any, sql: str, key: str) -> None:
    """An index may give that order by itself; where none is read, as here, rows are sorted before they are locked."""
    for setting, value in {"indexscan": "off", "indexonlyscan": "off", "bitmapscan": "on"}.items():
        await session.execute(f"set enable_{setting} = {value}")
    below = [
        child.get("Sort Key")
        for node in await plan(session, sql)
        if node["Node Type"] == "LockRows"
        for child in node["Plans"]
    ]
    assert [key] in below


@pytest.mark.parametrize("verb", CLAIMS)
async def test_a_claim_deletes_the_very_rows_it_locked(session: Any, verb: str) -> None:
    scans = {node["Node Type"] for node in await plan(session, HOT[verb]) if node.get("Relation Name") == "ready"}
    assert "Tid Scan" in scans


@pytest.mark.parametrize("verb", CLAIMS)
async def test_a_claim_reads_its_queue_in_order_without_sorting_it(session: Any, verb: str) -> None:
    found = [node for node in await plan(session, HOT[verb]) if node.get("Index Name") == "ready_pkey"]
    assert found
    assert all("queue" in node["Index Cond"] and "ROW(rank, seq)" in node["Index Cond"] for node in found)


@pytest.mark.parametrize("verb", CLAIMS)
async def test_a_claim_locks_tokens_in_the_order_of_the_index_and_no_more_than_it_takes(
    session: Any, verb: str
) -> None:
    """The index is read right below the lock; a sort between them would lock the whole queue first."""
    below = [
        [child["Node Type"] for child in node["Plans"]]
        for node in await plan(session, HOT[verb])
        if node["Node Type"] == "LockRows" and "ready" in {one.get("Relation Name") for one in nodes(node)}
    ]
    assert below == [["Index Scan"]]


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


@pytest.mark.parametrize("verb", HOT)
async def test_a_token_is_found_by_an_index_even_where_a_pooler_drops_our_settings(session: Any, verb: str) -> None:
    """The token tables are never small, so none of them is planned as one scan from end to end."""
    await session.execute("set enable_seqscan = on")
    await session.execute("set enable_bitmapscan = on")
    tokens = {"ready", "waiting", "running", "suspended", "wait"} - READ_WHOLE.get(verb, set())
    scanned = [node for node in await plan(session, HOT[verb]) if node["Node Type"] == "Seq Scan"]
    assert tokens.isdisjoint(node["Relation Name"] for node in scanned), [
        (n["Relation Name"], n.get("Filter")) for n in scanned
    ]


# --- statistics

_FILL = """
insert into outlast.job(id, name_id, queue, priority, tenant, payload, max_attempts, max_crashes)
  select gen_random_uuid(), 1, 'default', 5, 'default', '{}', 3, 3 from generate_series(1, 20000);
insert into outlast.ready(queue, rank, job_id, name_id) select queue, 11, id, 1 from outlast.job;
insert into outlast.waiting(job_id, due_at, queue, rank, name_id)
  select id, outlast.clock(), queue, 11, 1 from outlast.job;
insert into outlast.running(job_id, seq, worker, queue, rank, name_id)
  select id, 0, 0, queue, 11, 1 from outlast.job;
insert into outlast.finished(job_id, state, attempt, claim_no, crashes, interrupts)
  select id, 0, 1, 1, 0, 0 from outlast.job"""


@pytest.mark.parametrize("state", ["just installed", "grown since", "grown since it was counted empty"])
async def test_hot_plans_need_no_statistics(arena: Arena, database_url: str, state: str) -> None:
    """Nothing waits for autovacuum: not a fresh installation, nor one where it never comes by."""
    for table in sorted(GROWING):
        await arena.fetch(f"alter table outlast.{table} set (autovacuum_enabled = off)")
    if state == "grown since it was counted empty":
        await arena.fetch("vacuum (analyze)")
    if state != "just installed":
        await arena.execute_all(_FILL)
    connection = await connect(database_url, application_name="plans")
    try:
        await connection.execute("set plan_cache_mode = force_generic_plan")
        plans = {verb: await plan(connection, sql) for verb, sql in HOT.items()}
    finally:
        await connection.close()
    assert {verb: found for verb, nodes in plans.items() if (found := _read_whole(verb, nodes))} == {}
    for verb in CLAIMS:
        assert {"Tid Scan"} <= {node["Node Type"] for node in plans[verb] if node.get("Relation Name") == "ready"}
