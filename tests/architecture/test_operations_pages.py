"""Pages for operators name exactly what there is: actions, scopes, tables behind the wall, requests on a condition."""

from __future__ import annotations

import json
import re
from typing import Any

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


def test_the_apis_page_says_which_requests_take_which_conditions() -> None:
    """The table of versions is what the document says of headers, no more and no less."""
    cells = [
        line.strip("| ").split(" | ") for line in _reference("http-api.md").splitlines() if line.startswith("| `/v1/")
    ]
    told = {path.strip("`"): (_methods(unless), _methods(match)) for path, _, unless, match in cells}
    known = {path: (set[str](), set[str]()) for path in told}
    paths: dict[str, dict[str, Any]] = json.loads((CHECKOUT / "openapi" / "openapi.json").read_text())["paths"]
    for path, operations in paths.items():
        for method, operation in operations.items():
            sent = {
                each["name"]: each.get("required", False) for each in operation.get("parameters", ()) if "name" in each
            }
            for place, name in enumerate(("If-None-Match", "If-Match")):
                if name in sent:
                    known[path][place].add(f"{method.upper()}{' needs' if sent[name] else ''}")
            is_read = method == "get" and "ETag" in operation["responses"].get("200", {}).get("headers", {})
            assert is_read == (method == "get" and path in told), (method, path)
    assert told == known


def _methods(cell: str) -> set[str]:
    return {method + needs for method, needs in re.findall(r"`([A-Z]+)`( needs)?", cell)}


def _reference(name: str) -> str:
    return (CHECKOUT / "docs" / "reference" / name).read_text()
