"""Plans of the statements of limits: the gate is read in its order along an index, keys and slots by what they are."""

from __future__ import annotations

from typing import Any

import pytest

from app.drivers.postgres import (
    enqueue_statements,
    explain_turns,
    gate,
    gate_free,
    gate_look,
    limit_rules,
    slots,
    turns,
)
from tests.postgres.test_plans import GROWING, plan, session

__all__ = ["session"]

pytestmark = pytest.mark.postgres

STATEMENTS = {
    "look": gate_look.LOOK,
    "new keys": gate.NEW_KEYS,
    "lock keys": gate.LOCK_KEYS,
    "count keys": gate.COUNT_KEYS,
    "admit": gate.ADMIT,
    "take free ones": gate_free.TAKE_FREE,
    "find slots": slots._NAMED,
    "lock keys of slots": slots.LOCK_KEYS,
    "give back": slots.GIVE_BACK,
    "forget keys": slots.FORGET_KEYS,
    "keys with parked jobs": limit_rules.PARKED_KEYS,
    "open keys": limit_rules.OPEN_KEYS,
    "line up": turns.LINE_UP,
    "forget turns": turns.FORGET,
    "whose turn": explain_turns.TURNS,
    "who is before": explain_turns.AHEAD,
    "enqueue": enqueue_statements.ENQUEUE_LIMITED,
    "enqueue what is counted": enqueue_statements.ENQUEUE_COUNTED_LIMITED,
}
OF_LIMITS = {"gate", "slot", "limit_key"}
# What runs of a queue is counted where the queue lets only so many of its jobs run, and for no other.
PLACES = {"look", "count keys"}


@pytest.mark.parametrize("verb", STATEMENTS)
async def test_no_statement_reads_a_growing_table_from_end_to_end(session: Any, verb: str) -> None:
    growing = (GROWING | OF_LIMITS) - ({"running"} if verb in PLACES else set())
    whole = [
        (node["Node Type"], node["Relation Name"])
        for node in await plan(session, STATEMENTS[verb])
        if node.get("Relation Name") in growing
        if node["Node Type"] == "Seq Scan" or ("Index" in node["Node Type"] and "Index Cond" not in node)
    ]
    assert whole == []


async def test_a_look_reads_the_gate_in_order_and_parked_jobs_by_their_key(session: Any) -> None:
    found = [node for node in await plan(session, gate_look.LOOK) if node.get("Relation Name") == "gate"]
    assert {node.get("Index Name") for node in found} == {"gate_open", "gate_parked"}
    assert all("queue" in node["Index Cond"] for node in found)
    assert all("parked" in node["Index Cond"] for node in found if node["Index Name"] == "gate_parked")
