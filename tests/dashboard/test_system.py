"""The page of the system: what this process is set to, its connections, and all of it as a document without secrets."""

from __future__ import annotations

import pytest

from app.settings import Settings, shown
from tests.dashboard.visitor import Visitor
from tests.support.drivers import memory_env


async def test_settings_are_shown_and_passed_on_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_DATABASE_URL", "postgresql://me:swordfish@db/jobs")
    monkeypatch.setenv("OUTLAST_CODE_VERSION", "</code><script>")
    async with memory_env() as env, Visitor(env, config=shown(Settings.read())).there() as visitor:
        page, raw = await visitor.see("/system"), await visitor.get("/system/raw")
    assert "postgresql://me@db/jobs" in page
    assert "&lt;/code&gt;&lt;script&gt;" in page
    document = raw.json()
    assert document["config"] == {
        "OUTLAST_DATABASE_URL": "postgresql://me@db/jobs",
        "OUTLAST_CODE_VERSION": "</code><script>",
    }
    assert document["pool"] is None
    assert document["doctor"]["checks"]
    assert "swordfish" not in page + raw.text
