"""A run of schemathesis over a real API: the process, the keys it is given, what it found, what it reached."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.control.keys import Issued, KeyControl, KeyOrder
from app.domain.api_key import Scope
from app.domain.audit import Acting
from app.drivers.api_keys import keys_of
from app.http.documents import JOB_ID, PREFER
from tests.support.conformance_hooks import COUNTS, PROTECTED
from tests.support.processes import Fleet, Service
from tests.support.source import CHECKOUT
from tests.support.store import Store

TENANTS = ("red", "blue")
SCOPES: Mapping[str, Sequence[str]] = {
    "reads": ("jobs:read",),
    "writes": ("jobs:read", "jobs:write", "payload:read"),
    "admin": ("jobs:read", "jobs:write", "payload:read", "operate", "admin"),
}
# Left out by name: a drain ends the process that is asked, a stream does not end.
LEFT_OUT = ("startDrain", "drainWorker", "streamJob", "streamTopics")
ALL_PHASES = ("examples", "coverage", "fuzzing", "stateful")
_JOBS = "app.handlers.demo,tests.support.jobs_runs,tests.support.jobs_limits,tests.support.jobs_schedules"
# 428 says of a header that is missing what it is for; 412 and 428 are refusals, too.
_SETTINGS = """
[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "406", "409", "412", "413", "415", "422", "428", "5xx"]

[checks.missing_required_header]
expected-statuses = ["400", "401", "403", "406", "415", "422", "428"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run gave: its exit code, what it said, how often each operation answered with each status."""

    code: int
    said: str
    counts: Mapping[str, Mapping[str, int]]

    def reached(self) -> set[str]:
        """Give the operations that did at least once what they are for."""
        return {name for name, statuses in self.counts.items() if any(status < "400" for status in statuses)}


async def served(fleet: Fleet) -> Service:
    """Start an API that needs keys, with a worker and a scheduler behind it."""
    api = fleet.api(OUTLAST_JOBS=_JOBS, OUTLAST_LEASE_SECONDS="30", OUTLAST_HEARTBEAT_SECONDS="5")
    behind = [start(OUTLAST_JOBS=_JOBS) for start in (fleet.worker, fleet.scheduler)]
    for service in (api, *behind):
        await service.ready()
    return api


async def made_keys(store: Store) -> dict[tuple[str, str], Issued]:
    """Make a key for each tenant and each set of scopes."""
    keys = KeyControl(keys_of(store.driver), driver=store.driver)
    return {
        (tenant, name): await keys.create(
            KeyOrder(label=f"{tenant} {name}", tenant=tenant, scopes=frozenset(map(Scope, scopes))),
            by=Acting(actor="tests"),
        )
        for tenant in TENANTS
        for name, scopes in SCOPES.items()
    }


def _document(job_id: str) -> str:
    """Give the document with a job that is there in the place of the examples', and nothing to wait for."""
    text = (CHECKOUT / "openapi" / "openapi.json").read_text()
    return text.replace(JOB_ID, job_id).replace(PREFER["example"], "wait=0")


async def run(
    api: Service,
    issued: Issued,
    folder: Path,
    *,
    examples: int,
    seed: int,
    phases: Sequence[str] = ALL_PHASES,
    job_id: str,
    more: Sequence[str] = (),
    environment: Mapping[str, str],
) -> Ran:
    """Let schemathesis loose on an API with a key."""
    counts = folder / "counts.json"
    (folder / "schemathesis.toml").write_text(_SETTINGS)
    (folder / "openapi.json").write_text(_document(job_id))
    words = [
        *(sys.executable, "-m", "schemathesis.cli", "--no-color", "run", "openapi.json"),
        *("--url", api.api, "--header", f"Authorization: Bearer {issued.token}"),
        *("--phases", ",".join(phases), "--max-examples", str(examples), "--seed", str(seed)),
        *("--request-timeout", "60", "--warnings", "off", "--continue-on-failure", "--suppress-health-check", "all"),
        *(word for name in LEFT_OUT for word in ("--exclude-operation-id", name)),
        *more,
    ]
    hooks = {"SCHEMATHESIS_HOOKS": "tests.support.conformance_hooks", "PYTHONPATH": str(CHECKOUT)}
    own = {COUNTS: str(counts), PROTECTED: issued.key.id}
    said = folder / "schemathesis.log"
    with said.open("wb") as out:
        child = await asyncio.create_subprocess_exec(
            *words, cwd=folder, env={**environment, **hooks, **own}, stdout=out, stderr=asyncio.subprocess.STDOUT
        )
    try:
        await child.wait()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    found: dict[str, Any] = json.loads(counts.read_text()) if counts.exists() else {}
    assert child.returncode is not None
    return Ran(code=child.returncode, said=said.read_text(errors="replace"), counts=found)
