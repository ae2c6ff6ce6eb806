"""Real processes of the product: started, waited for, signalled, killed, and always cleaned up.

Ports are the processes' own choice, read off their announcement; the log of each goes to a file of its own. Intervals
are short, so that a lease passes within a test. Waiting polls with a deadline: order decides a test, not luck.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.ledger import FOLDER, Ledger
from tests.support.log_lint import unfit_lines
from tests.support.source import CHECKOUT

LEASE = 2.0
HEARTBEAT = 0.6
SWEEP = 0.5
POLL = 0.2
DRAIN = 3.0
# How much slower than promised a machine under load may be before a test says so.
SLACK = 10.0

SHORT = {
    "OUTLAST_LEASE_SECONDS": str(LEASE),
    "OUTLAST_HEARTBEAT_SECONDS": str(HEARTBEAT),
    "OUTLAST_SWEEP_SECONDS": str(SWEEP),
    "OUTLAST_POLL_SECONDS": str(POLL),
    "OUTLAST_DRAIN_SECONDS": str(DRAIN),
    "OUTLAST_CANCEL_GRACE_SECONDS": "0.5",
    "OUTLAST_LOG_FORMAT": "json",
    "OUTLAST_LOG_LEVEL": "debug",
}
# For tests in which a lease is not the point: a hundred megabytes take longer than two seconds on a busy machine.
LONG_LEASE = {"OUTLAST_LEASE_SECONDS": "30", "OUTLAST_HEARTBEAT_SECONDS": "2"}
JOBS = "tests.support.jobs_faults,tests.support.jobs_limits,tests.support.jobs_hostile,tests.support.jobs_runs"

PATIENCE = 30.0
KEY = "a-key-for-tests-" + "0123456789abcdef" * 2
_API = re.compile(r"(?:API|Uvicorn running) on (http://\S+?),? ")
_ADMIN = re.compile(r"admin on (http://\S+)")

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def eventually(condition: Callable[[], Awaitable[bool] | bool], what: str, within: float = PATIENCE) -> float:
    """Come back once a condition holds, with the seconds it took; fail, saying what was waited for, at the deadline."""
    began = time.monotonic()
    while True:
        answer = condition()
        if await answer if isinstance(answer, Awaitable) else answer:
            return time.monotonic() - began
        assert time.monotonic() - began < within, f"not within {within:g} s: {what}"
        await asyncio.sleep(0.01)


def report(line: str) -> None:
    """Say how long something took; pytest shows it with `-s`, and with a failure."""
    sys.stdout.write(f"{line}\n")


class Service:
    """One process of ours."""

    def __init__(self, words: tuple[str, ...], env: Mapping[str, str], log: Path, *, module: str = "app") -> None:
        self.name = log.stem
        self._log = log
        with log.open("ab") as out:
            self._child = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                cwd=CHECKOUT,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Give its process id."""
        return self._child.pid

    @property
    def code(self) -> int | None:
        """Give its exit code, negative when a signal ended it; None while it runs."""
        return self._child.poll()

    # --- what it says

    @property
    def text(self) -> str:
        """Give all it has said."""
        return self._log.read_text(errors="replace")

    def said(self, event: str, **facts: object) -> list[dict[str, Any]]:
        """Give the log lines of an event that carry these facts."""
        found = []
        for line in self.text.splitlines():
            if line.startswith("{"):
                entry: dict[str, Any] = json.loads(line)
                if entry.get("event") == event and all(entry.get(name) == value for name, value in facts.items()):
                    found.append(entry)
        return found

    @property
    def api(self) -> str:
        """Give the address of its API."""
        return self._address(_API)

    @property
    def admin(self) -> str:
        """Give the address of its probes and metrics."""
        return self._address(_ADMIN)

    def _address(self, pattern: re.Pattern[str]) -> str:
        match = pattern.search(self.text)
        assert match is not None, f"{self.name} has announced nothing of the kind:\n{self.text[-4000:]}"
        return match.group(1)

    async def ready(self) -> Service:
        """Wait until it has announced itself and its admin listener calls it ready."""
        await eventually(lambda: self._is_gone() or " admin on http" in self.text, f"{self.name} announces itself")
        assert self.code is None, f"{self.name} ended with {self.code}:\n{self.text[-4000:]}"
        async with httpx.AsyncClient(base_url=self.admin) as client:

            async def answers() -> bool:
                return (await client.get("/readyz")).status_code == httpx.codes.OK

            await eventually(answers, f"{self.name} is ready")
        return self

    async def metrics(self) -> Samples:
        """Give every sample its admin listener shows."""
        async with httpx.AsyncClient(base_url=self.admin, timeout=10) as client:
            response = await client.get("/metrics")
        families = text_string_to_metric_families(response.text)
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }

    def _is_gone(self) -> bool:
        return self.code is not None

    # --- what is done to it

    def terminate(self) -> None:
        """Ask it to leave."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it without a word."""
        self._send(signal.SIGKILL)
        self._child.wait(PATIENCE)

    def stop(self) -> None:
        """Freeze it, and come back once the kernel has."""
        self._send(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """Let it go on."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        if self.code is None:
            self._child.send_signal(number)

    async def gone(self, within: float = PATIENCE) -> int:
        """Wait for its end and give its exit code."""
        await eventually(self._is_gone, f"{self.name} ends", within)
        code = self.code
        assert code is not None
        return code

    def clean_up(self) -> None:
        """End it and everything it started, whatever state it is in; a test that failed shows what it said."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        ended = self._child.poll()
        self._child.wait(PATIENCE)
        report(f"--- {self.name}, pid {self.pid}, exit code {ended}\n{self.text[-6000:]}")


def client_of(service: Service, **options: Any) -> httpx.AsyncClient:
    """Give a client of a process's API, with the key."""
    return httpx.AsyncClient(
        base_url=service.api, headers={"Authorization": f"Bearer {KEY}"}, timeout=PATIENCE, **options
    )


class Fleet:
    """The processes of one test on one database."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.ledger = Ledger(folder)
        self._services: list[Service] = []
        self._key_file = folder / "api-key"
        self._key_file.write_text(KEY)

    def environment(self, **variables: str) -> dict[str, str]:
        """Give the environment of a process: short intervals, this database, the jobs of the tests."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
        ours = {
            "OUTLAST_DATABASE_URL": self.url,
            "OUTLAST_JOBS": JOBS,
            "OUTLAST_API_KEY_FILE": str(self._key_file),
            FOLDER: str(self.folder),
        }
        return inherited | SHORT | ours | variables

    def start(self, *words: str, module: str = "app", **variables: str) -> Service:
        """Start a process; it is not waited for."""
        log = self.folder / f"{words[0].replace(':', '.')}.{len(self._services)}.log"
        service = Service(words, self.environment(**variables), log, module=module)
        self._services.append(service)
        return service

    def worker(self, *words: str, **variables: str) -> Service:
        """Start a worker."""
        return self.start("worker", "--admin-port", "0", *words, **variables)

    def api(self, *words: str, **variables: str) -> Service:
        """Start an API."""
        return self.start("api", "--port", "0", "--admin-port", "0", *words, **variables)

    def relay(self, *words: str, **variables: str) -> Service:
        """Start a relay."""
        return self.start("relay", "--admin-port", "0", *words, **variables)

    def scheduler(self, *words: str, **variables: str) -> Service:
        """Start a scheduler."""
        return self.start("scheduler", "--admin-port", "0", *words, **variables)

    def run(self, *words: str, **variables: str) -> Service:
        """Start both in one process."""
        return self.start("run", "--port", "0", "--admin-port", "0", *words, **variables)

    def unfit(self) -> dict[str, list[str]]:
        """Give what processes said that none may, by process."""
        found = {service.name: unfit_lines(service.text) for service in self._services}
        return {name: lines for name, lines in found.items() if lines}

    def clean_up(self) -> None:
        """End all of them."""
        for service in self._services:
            service.clean_up()


@contextmanager
def fleet_on(url: str, folder: Path) -> Iterator[Fleet]:
    """Give a fleet, and leave no process of it behind."""
    fleet = Fleet(url, folder)
    try:
        yield fleet
    finally:
        fleet.clean_up()
    assert fleet.unfit() == {}, "a process said what none may"
