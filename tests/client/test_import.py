"""What importing the client costs: no store, no web framework, and little time."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.source import CHECKOUT

HEAVY = {
    "alembic",
    "asyncpg",
    "fastapi",
    "orjson",
    "prometheus_client",
    "sqlalchemy",
    "starlette",
    "structlog",
    "uvicorn",
}
MOST_SECONDS = 0.3  # of the processor's time, interpreter left out
SCRIPT = """
import json, sys, time
began = time.process_time()
import app.client
print(json.dumps([time.process_time() - began, sorted(sys.modules)]))
"""


def imported() -> tuple[float, list[str]]:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    seconds, modules = json.loads(done.stdout)
    return seconds, modules


def test_importing_the_client_is_quick_and_brings_in_neither_store_nor_framework() -> None:
    seconds, modules = min(imported() for _ in range(5))
    assert not {name.partition(".")[0] for name in modules} & (HEAVY | {"pydantic_settings"})
    ours = {name for name in modules if name.startswith("app.") and not name.startswith("app.client")}
    assert ours <= {"app.domain", "app.domain.errors", "app.domain.fault", "app.domain.refusals", "app.domain.state"}
    assert seconds < MOST_SECONDS


def test_installed_packages_say_that_they_are_typed() -> None:
    assert (CHECKOUT / "app/py.typed").exists()
