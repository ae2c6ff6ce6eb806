"""A whole worker process over the store that keeps nothing: it says so, and ends as an interpreter ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

_MODULE = """
import atexit, sys
from app.jobs.handle import job

atexit.register(sys.stderr.write, "the interpreter's own end")

@job("idle.job")
async def idle() -> None: ...
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "idle_jobs.py").write_text(_MODULE)
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")},
        "PYTHONPATH": os.pathsep.join((str(tmp_path), str(Path.cwd()))),
        "OUTLAST_DATABASE_URL": "memory://",
        "OUTLAST_JOBS": "idle_jobs",
        "OUTLAST_ADMIN_BIND": "127.0.0.1:0",
        "OUTLAST_LOG_FORMAT": "json",
        "OUTLAST_DRAIN_SECONDS": "5",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "worker"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process
        process.kill()


def test_it_warns_that_nothing_is_kept_and_a_clean_end_is_the_interpreters(worker: subprocess.Popen[str]) -> None:
    assert worker.stderr is not None
    lines: list[str] = []
    while not any('"worker.started"' in line for line in lines):
        lines.append(worker.stderr.readline())
        assert lines[-1], lines
    (said,) = [json.loads(line) for line in lines if '"store.volatile"' in line]
    assert (said["level"], said["driver"]) == ("warning", "memory")
    assert "OUTLAST_DATABASE_URL" in said["fix"]
    worker.send_signal(signal.SIGTERM)
    _, rest = worker.communicate(timeout=15)
    assert worker.returncode == 0
    assert rest.endswith("the interpreter's own end")
