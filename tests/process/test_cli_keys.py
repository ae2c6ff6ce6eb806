"""API keys from the command line, against a process that serves with nothing else to let anybody in."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from tests.process.conftest import Outlast
from tests.support.processes import PATIENCE, Fleet
from tests.support.store import store_on

pytestmark = [pytest.mark.postgres]


@pytest.fixture
def cli(outlast: Outlast, database_url: str) -> Outlast:
    return outlast.on(database_url)


def test_a_key_is_made_used_rotated_and_revoked(cli: Outlast, database_url: str, tmp_path: Path) -> None:
    fleet = Fleet(database_url, tmp_path)
    try:
        refused = fleet.api(OUTLAST_API_KEY_FILE="")
        assert asyncio.run(refused.gone()) == 64
        assert "no API key in force" in refused.text
        assert "outlast keys create" in refused.text
        first = cli("keys", "create", "--label", "ci", "--scope", "jobs:read", "--tenant", "acme").out.strip()
        key_id = first.split("_")[1]
        service = fleet.api(OUTLAST_API_KEY_FILE="")
        asyncio.run(service.ready())
        with httpx.Client(base_url=service.api, timeout=PATIENCE) as client:

            def status(token: str, path: str = "/v1/jobs") -> int:
                return client.get(path, headers={"Authorization": f"Bearer {token}"}).status_code

            assert (status(first), status(first, "/v1/audit"), status(f"{first[:-1]}x")) == (200, 403, 401)
            second = cli("keys", "rotate", key_id, "--overlap", "0s", "--replaces", first[-4:]).out.strip()
            assert _comes_to(lambda: (status(first), status(second)), (401, 200))
            said = cli("keys", "revoke", key_id, "--reason", "left the company")
            assert "within five seconds" in said.err
            assert _comes_to(lambda: status(second), 401)
        (document,) = cli("keys", "list", "--json").documents()
        assert (document["id"], document["tenant"], document["scopes"]) == (key_id, "acme", ["jobs:read"])
        assert document["last4"] == second[-4:]
        assert "revoked by" in cli("keys", "list").out
        rows = cli("audit", "list", "--kind", "key", "--json").documents()
        assert [row["action"] for row in rows] == ["key.revoke", "key.rotate", "key.create"]
        text = service.text + json.dumps([document, *rows]) + asyncio.run(_everything_kept(database_url))
        assert not [token for token in (first, second) if token.rpartition("_")[2] in text], (
            "a secret is kept somewhere"
        )
    finally:
        fleet.clean_up()


def _comes_to(look: object, wanted: object) -> bool:
    """Say whether something is so within the five seconds that are promised."""
    import time  # noqa: PLC0415 - real seconds, of another process

    assert callable(look)
    ends = time.monotonic() + 5
    while look() != wanted:
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True


async def _everything_kept(url: str) -> str:
    """Give every row of the store as text."""
    async with store_on(url) as store:
        tables = await store.fetch("select tablename from pg_tables where schemaname = 'outlast'")
        found = [await store.fetch(f"select t::text as row from outlast.{row['tablename']} t") for row in tables]
    return "\n".join(str(row["row"]) for rows in found for row in rows)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (
            ("create", "--label", "x", "--scope", "jobs:read", "--tenant", "a", "--all-tenants"),
            2,
            "one tenant or for all",
        ),
        (("create", "--label", "\u202e", "--scope", "jobs:read"), 2, "printable"),
        (("create", "--label", "x", "--scope", "jobs:read", "--expires", "soon"), 2, "--expires"),
        (("rotate", "0" * 16), 4, "no API key"),
        (("rotate", "0" * 16, "--overlap", "long"), 2, "no length of time"),
        (("revoke", "nothing"), 4, "no API key"),
    ],
)
def test_what_cannot_be_is_said(cli: Outlast, words: tuple[str, ...], code: int, says: str) -> None:
    assert says in cli("keys", *words, code=code).err
