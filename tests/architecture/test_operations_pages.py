"""Pages for operators name exactly what there is: actions of the audit, scopes of keys, tables behind the wall."""

from __future__ import annotations

import re

from app.domain.api_key import Scope
from app.domain.audit import Action
from app.drivers.postgres.vitals_wall import UNREAD, WALLED
from tests.support.source import CHECKOUT

OPERATIONS = CHECKOUT / "docs" / "operations"


def _page(name: str) -> str:
    return (OPERATIONS / name).read_text()


def test_the_audits_page_names_every_action_once() -> None:
    (row,) = re.findall(r"^\| `action` \| (.*) \|$", _page("audit.md"), re.MULTILINE)
    assert re.findall(r"`([^`]+)`", row) == [action.value for action in Action]


def test_the_keys_page_says_of_every_scope_once_what_it_allows() -> None:
    named = re.findall(r"^\| `([a-z:]+)` \|", _page("api-keys.md"), re.MULTILINE)
    assert sorted(named) == sorted(Scope)


def test_the_keys_page_names_the_tables_of_the_wall() -> None:
    text = " ".join(_page("api-keys.md").split())
    (walled,) = re.findall(r"row security on (.*?) hides every row", text)
    assert re.findall(r"`([a-z_]+)`", walled) == list(WALLED)
    (unread,) = re.findall(r"revoke all on (.*?) from outlast_api;", text)
    assert unread.split(", ") == [f"outlast.{name}" for name in UNREAD]
