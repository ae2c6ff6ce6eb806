"""`app.main`: nothing happens at import, and a start that fails is two lines and not a traceback."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from app.main import app


async def _start() -> list[MutableMapping[str, Any]]:
    sent: list[MutableMapping[str, Any]] = []
    inbox = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> MutableMapping[str, Any]:
        return next(inbox)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app({"type": "lifespan"}, receive, send)
    return sent


async def test_a_start_without_a_database_says_cause_and_repair() -> None:
    (failed,) = await _start()
    assert failed["type"] == "lifespan.startup.failed"
    assert failed["message"].startswith("SETTINGS_INVALID: OUTLAST_DATABASE_URL is not set\n  fix: ")


async def test_a_start_without_a_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_DATABASE_URL", "memory://")
    (failed,) = await _start()
    assert failed["type"] == "lifespan.startup.failed"
    assert "OUTLAST_API_KEY_FILE" in failed["message"]


async def test_it_starts_and_stops_with_a_store_and_a_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k" * 40)
    monkeypatch.setenv("OUTLAST_DATABASE_URL", "memory://")
    monkeypatch.setenv("OUTLAST_API_KEY_FILE", str(tmp_path / "key"))
    assert [message["type"] for message in await _start()] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
