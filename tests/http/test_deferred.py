"""`app.main`: nothing happens at import, and a start that fails is two lines and not a traceback."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from app.control.overview import OverviewControl
from app.domain.snapshot import Stats
from app.main import app


async def _start(until: asyncio.Event | None = None) -> list[MutableMapping[str, Any]]:
    """Start the application and stop it, once the event is set."""
    sent: list[MutableMapping[str, Any]] = []
    inbox = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> MutableMapping[str, Any]:
        if sent and until is not None:
            await until.wait()
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


async def test_it_counts_the_store_for_its_pages_though_nobody_looks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("k" * 40)
    monkeypatch.setenv("OUTLAST_DATABASE_URL", "memory://")
    monkeypatch.setenv("OUTLAST_API_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setattr("app.http.counting.COUNT_SECONDS", 0.01)
    made, counted = list[OverviewControl](), asyncio.Event()

    class Watched(OverviewControl):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

        async def stats(self) -> Stats:
            found = await super().stats()
            counted.set()
            return found

    monkeypatch.setattr("app.asgi.OverviewControl", Watched)
    monkeypatch.setattr("app.site.OverviewControl", Watched)
    await _start(counted)
    (overview,) = made  # the pages have no other
    assert [sample.oldest_ready_seconds for sample in overview.history(3_600)] == [0.0]
    assert [task for task in asyncio.all_tasks() if task.get_name() == "outlast.count"] == []
