"""Plans of the statements beside the hot path: bounded by what they are about, never by what the store holds."""

from __future__ import annotations

from typing import Any

import pytest

from app.domain.retention import Chore
from app.drivers.postgres import (
    audit,
    delete,
    describe,
    due,
    expire,
    explain,
    held_still,
    listing,
    patch,
    purge,
    purge_chores,
    reap,
    retry,
    run_now,
)
from tests.postgres.test_plans import GROWING, READ_WHOLE, plan, session

__all__ = ["session"]

pytestmark = pytest.mark.postgres

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
    "newest jobs": listing._PAGE.replace("<candidates>", listing._ENVELOPES),
    "done jobs": listing._PAGE.replace("<candidates>", listing._ENDED),
    "dead jobs": listing._PAGE.replace("<candidates>", listing._ENDED_BADLY),
    "jobs older than one": listing.downwards(listing._PAGE.replace("<candidates>", listing._ENVELOPES)),
    "jobs newer than one": listing.upwards(listing._PAGE.replace("<candidates>", listing._ENVELOPES)),
    "done jobs newer than one": listing.upwards(listing._PAGE.replace("<candidates>", listing._ENDED)),
    "children": listing._PAGE.replace("<candidates>", listing._CHILDREN),
    "count of jobs": listing._COUNT.replace("<candidates>", listing._ENVELOPES).replace("<stands>", listing._UNNEEDED),
    "count of done jobs": listing._COUNT.replace("<candidates>", listing._ENDED).replace(
        "<stands>", listing._COUNT_TOKENS
    ),
    "dead letters": listing._DEAD,
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
# Read from end to end on purpose: what runs in the whole fleet is little.
SWEEP = {"running"}


@pytest.mark.parametrize("verb", BESIDE)
async def test_no_statement_reads_a_growing_table_from_end_to_end(session: Any, verb: str) -> None:
    assert _scanned(await plan(session, BESIDE[verb])) == READ_WHOLE.get(verb, set())


@pytest.mark.parametrize("sql", [reap._SWEEP, reap._SURRENDER, due._DUE], ids=["reap", "surrender", "due"])
async def test_a_sweep_reads_running_jobs_and_no_other_growing_table(session: Any, sql: str) -> None:
    assert _scanned(await plan(session, sql)) <= SWEEP


@pytest.mark.parametrize("verb", ["newest jobs", "done jobs", "dead jobs"])
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
