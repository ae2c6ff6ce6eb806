"""Plans of the statements of limits: bounded by who comes next, never by how many wait or how many keys there are."""

from __future__ import annotations

from typing import Any

import pytest

from app.drivers.postgres import gate, slots, slots_view
from tests.postgres.test_plans import plan, session

__all__ = ["session"]

pytestmark = pytest.mark.postgres

LIMITED = {
    "look into the gate": gate.LOOK,
    "lock keys": gate.LOCK_KEYS,
    "count keys": gate.COUNT_KEYS,
    "admit": gate.ADMIT,
    "find slots of claims": slots._NAMED,
    "give slots back": slots.GIVE_BACK,
    "lock keys to give back": slots.LOCK_KEYS,
    "slots of a job": slots_view.SLOTS_OF_JOB,
}
# What runs of a queue is counted where the queue lets only so many of its jobs run.
GROWING = {"job", "ready", "gate", "slot", "limit_key"}


@pytest.mark.parametrize("verb", LIMITED)
async def test_no_statement_of_limits_reads_a_growing_table_from_end_to_end(session: Any, verb: str) -> None:
    found = [
        (node["Node Type"], node["Relation Name"], node.get("Index Name"))
        for node in await plan(session, LIMITED[verb])
        if node.get("Relation Name") in GROWING
        if node["Node Type"] == "Seq Scan" or ("Index" in node["Node Type"] and "Index Cond" not in node)
    ]
    assert found == []


async def test_the_gate_is_read_in_a_claims_order_without_sorting_it(session: Any) -> None:
    """The limit is right above the index: of a queue, and of a key that opened, only the first are read."""
    found = [node for node in await plan(session, gate.LOOK) if node.get("Relation Name") == "gate"]
    assert {node["Index Name"] for node in found} == {"gate_open", "gate_parked"}
    assert all("queue" in node["Index Cond"] for node in found)
