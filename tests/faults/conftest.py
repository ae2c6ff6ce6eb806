"""What fault tests may ask for: a database with an audit, processes on it, the ledger of effects, a seed.

One seed runs in every test run, and for what a fleet meets every day a second; more under `long` and `soak`.
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

_HERE = Path(__file__).parent
_EVERY_DAY = ("test_f01_", "test_f06_", "test_f09_", "test_f15_", "test_f37_")
_SECOND, _LAST = 2, 22

SEEDS = [1, _SECOND, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(_SECOND + 1, _LAST + 1))]


@pytest.hookimpl(tryfirst=True)  # before what is not asked for is left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make the second seed of a fault that is rare a long test."""
    for item in items:
        if item.path.parent != _HERE or item.path.name.startswith(_EVERY_DAY):
            continue
        if (
            isinstance(item, pytest.Function)
            and hasattr(item, "callspec")
            and item.callspec.params.get("seed") == _SECOND
        ):
            item.add_marker(pytest.mark.long)


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
