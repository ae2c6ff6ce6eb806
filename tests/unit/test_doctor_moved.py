"""The command that goes on with a move that was cut: one that can be run, and never to a database that is a guess."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from app.cli.move import without_user
from app.control.doctor.moved import again
from app.domain.audit import Action, AuditView, Target
from app.domain.vitals import OnTheWay

_AT = datetime(2026, 11, 30, tzinfo=UTC)


def left(database: str = "new", schema: str = "outlast") -> OnTheWay:
    return OnTheWay(target=f"7/{database}/{schema}", database=database, count=1, late=0, since=_AT)


def told(**details: str) -> AuditView:
    return AuditView(
        seq=1,
        id=UUID(int=1),
        at=_AT,
        actor="ada",
        tenant=None,
        action=Action.JOBS_MOVE,
        target_kind=Target.STORE,
        target=None,
        reason=None,
        outcome="begun",
        details=json.dumps(details),
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:word@db.example.com/new", "postgresql://db.example.com/new"),
        ("postgresql://ada:word@db:5433/new?sslmode=require", "postgresql://db:5433/new"),
        ("postgresql://ada@[::1]:5433/new", "'postgresql://[::1]:5433/new'"),
        ("postgresql:///new?host=/tmp/pg&port=5433", "'postgresql:///new?host=/tmp/pg&port=5433'"),
        ("postgresql://ada@/new?host=/tmp/pg", "'postgresql:///new?host=/tmp/pg'"),
        ("postgresql:///new", "postgresql:///new"),
    ],
)
def test_it_names_the_address_that_was_given_without_who_went_there(url: str, shown: str) -> None:
    assert again(left(), [told(to=without_user(url))]) == f"outlast jobs move --to {shown}"


def test_it_names_the_queue_and_the_schema() -> None:
    command = again(left(schema="jobs"), [told(to="db/new", queue="big mail"), told(to="db/new")])
    assert command == "OUTLAST_SCHEMA=jobs outlast jobs move --to postgresql://db/new --queue 'big mail'"


def test_rows_of_other_databases_do_not_matter() -> None:
    rows = [told(to="db/old"), told(**{"from": "db/new"}), told(to="db:1/a%20b")]
    assert again(left("a b"), rows) == "outlast jobs move --to postgresql://db:1/a%20b"


@pytest.mark.parametrize(
    "rows", [[], [told(to="db/old")], [told(to="a/new"), told(to="b/new")], [told(to="::1:5/new")]]
)
def test_no_address_is_guessed(rows: list[AuditView]) -> None:
    assert again(left(), rows) is None
