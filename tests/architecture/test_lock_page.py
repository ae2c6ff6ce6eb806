"""The lock order that the page about concurrency gives is that of the statements, and no statement is left out."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

from app.drivers import postgres
from docs.locks import BEHIND_THEIR_END, ORDER, RANK, VERBS, Lock, asked_for, passed_over, waited_for


def statements() -> dict[str, str]:
    """Give every text of the driver that locks rows which several verbs want; what is still to be filled in is none."""
    found: dict[str, str] = {}
    for info in pkgutil.iter_modules(postgres.__path__):
        module = import_module(f"{postgres.__name__}.{info.name}")
        for name, text in vars(module).items():
            if isinstance(text, str) and "{" not in text and (waited_for([text]) or passed_over([text])):
                found[f"{info.name}.{name}"] = text
    return found


def test_every_statement_that_locks_belongs_to_a_verb() -> None:
    known = [" ".join(sql.split()) for of_verb in VERBS.values() for sql in of_verb]
    loose = [name for name, text in statements().items() if not any(" ".join(text.split()) in sql for sql in known)]
    assert loose == []


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_statement_waits_for_is_locked_in_the_order_of_the_page(verb: str) -> None:
    """In the order of its text, in which parts of a statement feed each other; what is passed over holds nobody up."""
    for sql in VERBS[verb]:
        asked = [lock.table for lock in asked_for(sql) if not lock.skips and lock.table in RANK]
        ranks = [RANK[table] for table in asked if not (verb in BEHIND_THEIR_END and table == "wait")]
        assert ranks == sorted(ranks), asked


def test_a_verb_that_waits_for_nothing_and_passes_over_nothing_is_none() -> None:
    assert [verb for verb, sql in VERBS.items() if not waited_for(sql) | passed_over(sql)] == []


def test_no_table_has_two_places() -> None:
    assert len(RANK) == sum(map(len, ORDER))


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("select 1 from outlast.ready r where (x) for update", [Lock("ready", skips=False)]),
        (
            "with a as (select (select 1 from outlast.job) from outlast.wait w for update skip locked) select 1",
            [Lock("wait", skips=True)],
        ),
        (
            "select from outlast.running r join outlast.worker w on true for update of r",
            [Lock("running", skips=False)],
        ),
        ("insert into outlast.job(id) values (1) on conflict do update set id = 2", []),
    ],
)
def test_locks_are_read_off_a_statement(sql: str, found: list[Lock]) -> None:
    assert list(asked_for(sql)) == found


def test_a_change_waits_unless_its_rows_were_passed_over_before() -> None:
    taken = "with l as (select from outlast.ready for update skip locked) delete from outlast.ready"
    assert (waited_for([taken]), passed_over([taken])) == (set(), {"ready"})
    assert waited_for(["update outlast.worker set a = 1", "insert into outlast.live_key values (1)"]) == {
        "worker",
        "live_key",
    }
