"""Plans of the statements beside the hot path: bounded by what they are about, never by what the store holds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from app.domain.job import JobId, WorkerId
from app.domain.retention import Chore
from app.domain.snapshot import Place
from app.domain.state import LIVE, State
from app.drivers.postgres import (
    audit,
    counting,
    dead_letters,
    delete,
    describe,
    due,
    expire,
    explain,
    flow,
    held_still,
    list_sources,
    listing,
    listing_by_time,
    patch,
    purge,
    purge_chores,
    reap,
    retry,
    run_now,
)
from app.drivers.reading import ListQuery, TimeOrder, TimeSort
from tests.postgres.test_plans import GROWING, READ_WHOLE, plan, session

__all__ = ["session"]

pytestmark = pytest.mark.postgres

SOURCES = {
    "newest": list_sources.ALL,
    "done": list_sources.of_states(frozenset({State.DONE})),
    "dead": list_sources.of_states(frozenset({State.DEAD})),
    "live": list_sources.of_states(LIVE - {State.READY}),
    "keyed": list_sources.KEY,
    "child": list_sources.CHILDREN,
    "tenant's": list_sources.TENANT,
    "worker's": list_sources.WORKER,
    "failed": list_sources.ERROR,
    "failed or expired": list_sources.ERROR_OR_END,
    "tagged": list_sources.tagged("$10", 1),
    "tagged somehow": list_sources.tagged("$10", 3),
    "wholly tagged": list_sources.one_tag(2),
}
COUNTS = {
    "newest": ("newest", ListQuery(name="demo.job")),
    "done": ("done", ListQuery(states=frozenset({State.DONE}))),
    "live by tag": ("tagged", ListQuery(states=LIVE, tags_any=("eu",))),
    "expired": ("failed or expired", ListQuery(error_code="JOB_EXPIRED")),
    "failed": ("failed", ListQuery(error_code="MAILBOX", finished_after=datetime.now(UTC), worker_id=WorkerId(1))),
}
_PLACE = Place(datetime.now(UTC), JobId(UUID(int=1)))
BETWEEN = ListQuery(run_at_after=_PLACE.at, finished_before=_PLACE.at)
ORDERS = [
    TimeOrder(sort=sort, is_ascending=is_ascending, place=place)
    for sort in TimeSort
    for is_ascending in (True, False)
    for place in (None, _PLACE)
]

BESIDE = {
    "describe": describe._DESCRIBE,
    "explain": explain._PLACE,
    "attempts": describe._ATTEMPTS,
    "finished among": describe._FINISHED_AMONG,
    "retry": retry._RETRY,
    "why not retried": retry._WHY_NOT,
    "expire": expire._EXPIRE,
    "purge": purge._PURGE,
    "dry purge": purge._COUNT,
    "round over ended jobs": purge._TIDY,
    "round over keys": purge_chores.step_sql(Chore.KEYS),
    "round over sources": purge_chores.step_sql(Chore.SOURCES),
    "round over events": purge_chores.step_sql(Chore.EVENTS),
    "jobs that are done": purge_chores._DONE_TO,
    **{f"{named} jobs": listing.over(listing.PAGE, source) for named, source in SOURCES.items()},
    **{
        f"{named} jobs older": list_sources.downwards(listing.over(listing.PAGE, source))
        for named, source in SOURCES.items()
    },
    **{f"{named} jobs newer": listing.upwards(listing.over(listing.PAGE, source)) for named, source in SOURCES.items()},
    **{
        f"count: {named}": listing.over(counting.count_sql(query, SOURCES[of]), SOURCES[of])
        for named, (of, query) in COUNTS.items()
    },
    **{f"jobs by time: {order}": listing_by_time.page_sql(BETWEEN, order) for order in ORDERS},
    "add counts": flow._ADD,
    "forget counts": flow._FORGET,
    "chart": flow._FLOW,
    "chart of job types": flow._KINDS,
    "dead letters": dead_letters._DEAD,
    "run now": run_now._RUN_NOW,
    "a job held still": held_still._LOCK,
    "patch: another priority": patch._RERANK_READY,
    "patch: a time for a ready job": patch._TO_WAITING,
    "patch: no time for a delayed job": patch._TO_READY,
    "patch: another time": patch._RESCHEDULE,
    "delete": delete.DELETE_ONE,
    "audit": audit._EVERY,
    "audit of a target": audit._OF_TARGET,
    "audit of an actor": audit._OF_ACTOR,
}
# Of these the candidates themselves are sorted, as many as a page may look at.
SEVERAL = {"live", "tagged somehow", "failed or expired"}
# Read from end to end on purpose: what runs in the whole fleet is little.
SWEEP = {"running"}


@pytest.mark.parametrize("verb", BESIDE)
async def test_no_statement_reads_a_growing_table_from_end_to_end(session: Any, verb: str) -> None:
    assert _scanned(await plan(session, BESIDE[verb])) == READ_WHOLE.get(verb, set())


@pytest.mark.parametrize("sql", [reap._SWEEP, reap._SURRENDER, due._DUE], ids=["reap", "surrender", "due"])
async def test_a_sweep_reads_running_jobs_and_no_other_growing_table(session: Any, sql: str) -> None:
    assert _scanned(await plan(session, sql)) <= SWEEP


@pytest.mark.parametrize("verb", [f"{named} jobs" for named in SOURCES if named not in SEVERAL])
async def test_a_page_is_read_in_order_without_sorting(session: Any, verb: str) -> None:
    """A sort would first look at every candidate; only the page itself may be sorted."""
    sorts = [node for node in await plan(session, BESIDE[verb]) if "Sort" in node["Node Type"]]
    assert [node["Sort Key"] for node in sorts] == [["p.id DESC"]]


def _scanned(nodes: list[dict[str, Any]]) -> set[str]:
    full = {
        node["Relation Name"]
        for node in nodes
        if node["Node Type"] == "Seq Scan" or ("Index" in node["Node Type"] and _reads_all(node))
        if "Relation Name" in node
    }
    return full & GROWING


def _reads_all(node: dict[str, Any]) -> bool:
    """Say whether an index is read whole; a partial or an ordered one under a limit has its reason."""
    return "Index Cond" not in node and "Filter" in node and node.get("Scan Direction") != "Backward"
