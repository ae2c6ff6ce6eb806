"""A whole process whose bodies reach for its event loop: it goes on, and ends as told, its last step included."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.process

_JOBS = """
import asyncio, sys
from app.jobs.handle import job

@job("executor.job")
async def executor() -> None:
    await asyncio.get_running_loop().shutdown_default_executor()

@job("cancel.job")
async def cancel() -> int:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    return sum(task.cancel() for task in others)

@job("stop.job")
async def stop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)

@job("exit.job")
async def leave() -> None:
    asyncio.get_running_loop().call_soon(sys.exit, 0)
    await asyncio.sleep(0)

@job("good.job")
async def good(n: int) -> int:
    return n
"""
_MAIN = """
from app.process import Process
from app.settings import Settings

process = Process(
    Settings(), ("worker", "api"), is_dev=True,
    announce=lambda places: print(places.api, flush=True), last=lambda _: print("last", flush=True),
)
raise SystemExit(process.run())
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "hostile_jobs.py").write_text(_JOBS)
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")},
        "PYTHONPATH": os.pathsep.join((str(tmp_path), str(Path.cwd()))),
        "OUTLAST_DATABASE_URL": "memory://",
        "OUTLAST_JOBS": "hostile_jobs",
        "OUTLAST_BIND": "127.0.0.1:0",
        "OUTLAST_ADMIN_BIND": "127.0.0.1:0",
        "OUTLAST_LOG_FORMAT": "json",
        "OUTLAST_DRAIN_SECONDS": "5",
    }
    with subprocess.Popen(
        [sys.executable, "-c", _MAIN], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as started:
        yield started
        started.kill()


def done(client: httpx.Client, name: str, **payload: Any) -> Any:
    """Enqueue a job and give its result once it is done."""
    job = client.post("/v1/jobs", json={"name": name, "payload": payload}).raise_for_status().json()
    until = time.monotonic() + 10
    while client.get(f"/v1/jobs/{job['id']}").raise_for_status().json()["state"] != "done":
        assert time.monotonic() < until
    return client.get(f"/v1/jobs/{job['id']}/result").raise_for_status().json()["result"]


def test_bodies_that_reach_for_the_loop_end_neither_it_nor_what_the_process_does_last(
    process: subprocess.Popen[str],
) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    said: list[str] = []
    reader = threading.Thread(target=said.extend, args=(process.stderr,))
    reader.start()
    url = process.stdout.readline().strip()
    with httpx.Client(base_url=url, trust_env=False) as client:
        assert done(client, "cancel.job") == 0
        for hostile in ("stop.job", "exit.job", "executor.job"):
            done(client, hostile)
            assert done(client, "good.job", n=7) == 7
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    reader.join(5)
    assert process.stdout.read() == "last\n"
    assert all(line.startswith("{") for line in said), said
    assert sum('"event": "cancel.refused"' in line for line in said) == 1
    assert sum('"event": "loop.left"' in line for line in said) == 1  # the second is counted, not said
