"""Webhooks through real processes: made on the command line, named over HTTP, delivered, also past a worker's death."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.process.conftest import Outlast
from tests.support.processes import Fleet, client_of
from tests.support.receiver import receiving

pytestmark = [pytest.mark.postgres, pytest.mark.process, pytest.mark.timeout(120)]


@pytest.fixture
def cli(outlast: Outlast, database_url: str, switched_on: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Outlast:
    for name, value in switched_on.items():
        monkeypatch.setenv(name, value)
    return outlast.on(database_url)


@pytest.fixture
def switched_on(folder: Path) -> dict[str, str]:
    """What switches webhooks on, with receivers on this machine."""
    path = folder / "callback.key"
    path.write_text(secrets.token_hex(32))
    return {"OUTLAST_CALLBACK_KEY_FILE": str(path), "OUTLAST_CALLBACK_ALLOW": "127.0.0.1"}


async def _enqueued(fleet: Fleet, api: Any, webhook_id: str) -> str:
    async with client_of(api) as client:
        job = {"name": "faults.hold", "payload": {"name": "quick"}, "callback": {"secret_id": webhook_id}}
        response = await client.post("/v1/jobs", json=job)
        assert response.status_code == 201, response.text
        return str(response.json()["id"])


async def test_a_killed_workers_delivery_is_told_again_under_its_id(
    fleet: Fleet, cli: Outlast, switched_on: dict[str, str]
) -> None:
    async with receiving() as receiver:
        made = await asyncio.to_thread(cli, "webhooks", "create", receiver.url, "--label", "shop")
        secret = made.out.strip()
        (webhook,) = (await asyncio.to_thread(cli, "webhooks", "list", "--json")).documents()
        api, worker = fleet.api(**switched_on), fleet.worker(**switched_on)
        await api.ready()
        await worker.ready()

        async def dies(_writer: asyncio.StreamWriter) -> None:
            worker.kill()
            await worker.gone()

        receiver.script = [dies]
        job_id = await _enqueued(fleet, api, webhook["id"])
        await receiver.until(1)
        await fleet.worker(**switched_on).ready()
        await _comes_to(cli, webhook["id"], "delivered")
        first, second = receiver.received
        assert Webhook(secret).verify(first.body, first.headers)["subject"] == job_id
        assert Webhook(secret).verify(second.body, second.headers)["subject"] == job_id
        assert (first.body, first.headers["webhook-id"]) == (second.body, second.headers["webhook-id"])
        said = "".join(path.read_text() for path in fleet.folder.glob("*.log"))
        assert "webhook.delivered" in said
        assert secret not in said


async def _comes_to(cli: Outlast, webhook_id: str, state: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            found = (await asyncio.to_thread(cli, "webhooks", "deliveries", webhook_id, "--json")).documents()
            if [each["state"] for each in found] == [state]:
                one: dict[str, Any] = found[0]
                return one
            await asyncio.sleep(0.2)


def test_webhooks_are_kept_from_the_command_line(cli: Outlast) -> None:
    made = cli("webhooks", "create", "https://hooks.example.com/", "--label", "shop", "--json").documents()[0]
    assert made["secret"].startswith("whsec_")
    turned = cli("webhooks", "rotate", made["id"], "--overlap", "1h").out.strip()
    assert turned not in {"", made["secret"]}
    assert "disabled" in cli("webhooks", "disable", made["id"], "--reason", "it moves").err
    (listed,) = cli("webhooks", "list", "--json").documents()
    assert (listed["is_disabled"], listed["disabled_reason"], listed["secret_number"]) == (True, "it moves", 2)
    assert "secret" not in listed
    assert "enabled" in cli("webhooks", "enable", made["id"]).err
    assert "nothing was told" in cli("webhooks", "deliveries", made["id"]).err
    refused = cli("webhooks", "create", "https://10.0.0.1/", "--label", "x", code=1)
    assert "CALLBACK_REFUSED" in refused.err
    assert "is deleted" in cli("webhooks", "delete", made["id"], "--yes").err
    rows = cli("audit", "list", "--kind", "webhook", "--json").documents()
    assert [row["action"] for row in rows] == [
        *("webhook.delete", "webhook.update", "webhook.update", "webhook.rotate", "webhook.create"),
    ]


def test_without_a_master_key_none_is_made(outlast: Outlast, database_url: str) -> None:
    refused = outlast.on(database_url)("webhooks", "create", "https://hooks.example.com/", "--label", "x", code=1)
    assert "OUTLAST_CALLBACK_KEY_FILE" in refused.err
