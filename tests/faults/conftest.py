"""What fault tests may ask for: a database with an audit, processes on it, the ledger of effects, a seed.

Two seeds run in every test run, twenty more under `soak`.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.faults.history import audit, hold_what_is_new
from tests.support.ledger import FOLDER, Ledger
from tests.support.postgres import scratch
from tests.support.processes import Fleet, fleet_on, report
from tests.support.store import Store, store_on

_QUICK = 2
_LONG = 20

SEEDS = [
    *range(1, _QUICK + 1),
    *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(_QUICK + 1, _QUICK + _LONG + 1)),
]


@pytest.fixture(params=SEEDS, ids=lambda seed: f"seed{seed}")
def seed(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    report(f"seed {number}")
    return number


@pytest.fixture
def dice(seed: int) -> random.Random:
    """The run's own chance."""
    return random.Random(seed)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, for sockets, logs and the ledger."""
    with tempfile.TemporaryDirectory(prefix="outlast-faults-", dir=scratch()) as path:
        yield Path(path)


@pytest.fixture
def ledger(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """The ledger, for handlers that run in the test's own process too."""
    monkeypatch.setenv(FOLDER, str(folder))
    return Ledger(folder)


@pytest.fixture
def fleet(database_url: str, folder: Path) -> Iterator[Fleet]:
    """The processes of a test."""
    with fleet_on(database_url, folder) as opened:
        yield opened


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    """The database of a test, audited, and held to its history once the test is over."""
    async with store_on(database_url) as opened:
        await audit(opened)
        yield opened
        await hold_what_is_new(opened)
