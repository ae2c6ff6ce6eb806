"""What the doctor's tests may ask for: a server that can be broken and mended."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli.devdb import DevPostgres
from tests.support import postgres


@pytest.fixture
def durable_postgres() -> Iterator[DevPostgres]:
    """A server that keeps what it commits, as those of tests do not, and may be reconfigured and restarted."""
    with tempfile.TemporaryDirectory(prefix="outlast-durable-", dir=postgres.scratch()) as folder:
        Path(folder).chmod(0o711)
        server = DevPostgres(
            Path(folder) / "pg",
            version=postgres.chosen_version(),
            durable=True,
            options={"max_prepared_transactions": "2"},
        )
        server.start()
        try:
            yield server
        finally:
            server.stop_immediate()
