"""The PostgreSQL of the tests: one cluster per run, one migrated template per xdist worker, one database per test.

`TEST_DATABASE_URL` names a server to use instead; else `PG` chooses the version (18 is bundled, 15 the system's own).
Nothing is started before the first test asks for a database.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import tempfile
import threading
import uuid
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from app.cli.devdb import DevPostgres

T = TypeVar("T")

_OPTIONS = {
    "max_connections": "400",
    "max_wal_size": "256MB",
    # What the log says of a deadlock is of use with both statements whole.
    "log_lock_waits": "on",
    "track_activity_query_size": "16384",
}
SUPERUSER_DATABASE = "postgres"
# In memory a database is made in 10 ms, on a disk in 200.
_MEMORY = Path("/dev/shm")
_MEMORY_NEEDED_BYTES = 2 * 1024**3

# A server outlives the worker that started it: the handle is kept from being collected, which would warn of its child.
_KEPT: list[DevPostgres] = []


def chosen_version() -> str:
    """Give the major version the run was asked for."""
    return os.environ.get("PG") or "18"


def scratch() -> Path:
    """Give the folder for clusters: memory where there is enough, as containers often grant 64 MB of it only."""
    if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _MEMORY_NEEDED_BYTES:
        return _MEMORY
    return Path(tempfile.gettempdir())


def run_cluster(run: str | None = None) -> DevPostgres:
    """Give this run's cluster, started or not; a worker knows the run, the process that outlives it says which."""
    run = run or os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
    return new_cluster(scratch() / f"outlast-tests-{os.geteuid()}-{run[:12]}")


def new_cluster(root: Path, **options: str) -> DevPostgres:
    """Give a cluster that is quick to make and to lose; `options` are settings of postgresql.conf."""
    return DevPostgres(root, version=chosen_version(), durable=False, options=_OPTIONS | options)


def start_once(cluster: DevPostgres) -> None:
    """Start the run's cluster unless another worker has; the first to come does it."""
    with _only_one(cluster.cluster.root.with_suffix(".lock")):
        if cluster.pid is None:
            cluster.start()
            _KEPT.append(cluster)


def end_run(run: str) -> None:
    """Stop the run's cluster, if it was started, and delete it."""
    wanted = run_cluster(run)
    # Only who holds the folder may stop its server: here who started it, or nobody any more once the workers have gone.
    cluster = next((kept for kept in _KEPT if kept.cluster.root == wanted.cluster.root), wanted)
    if cluster.cluster.root.exists():
        cluster.wipe()
    cluster.cluster.root.with_suffix(".lock").unlink(missing_ok=True)


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Server:
    """A running server as an administrator sees it: makes and drops databases over one connection of its own.

    The connection lives on a thread with a loop of its own, so that synchronous fixtures can use it whatever loop a
    test runs on.
    """

    def __init__(self, url: str, *, worker: str) -> None:
        self._url = urlsplit(url)
        self._worker = worker
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tests.postgres", daemon=True)
        self._thread.start()
        self._admin: asyncpg.Connection | None = None
        self._template: str | None = None

    def url(self, database: str) -> str:
        """Give the SQLAlchemy URL of a database."""
        return urlunsplit(self._url._replace(scheme="postgresql+asyncpg", path=f"/{database}"))

    def execute(self, sql: str) -> None:
        """Run one statement outside a transaction, on the server's own database."""
        self.wait(self._execute(sql))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end on the server's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def create(self, *, migrated: bool = True) -> str:
        """Create a database and give its name; a migrated one is a copy of the worker's template."""
        name = f"t_{self._worker}_{uuid.uuid4().hex[:12]}"
        template = self._migrated_template() if migrated else "template1"
        self.execute(f"create database {name} template {template} strategy file_copy")
        return name

    def drop(self, database: str) -> None:
        """Drop a database, cutting what is still connected."""
        self.execute(f"drop database if exists {database} with (force)")

    def close(self) -> None:
        """Drop the template and end the connection and its thread."""
        if self._template is not None:
            self.drop(self._template)
        if self._admin is not None:
            self.wait(self._admin.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _migrated_template(self) -> str:
        if self._template is None:
            name = f"template_{self._worker}_{uuid.uuid4().hex[:8]}"
            self.execute(f"create database {name}")
            self.wait(migrate(self.url(name)))
            self._template = name
        return self._template

    async def _execute(self, sql: str) -> None:
        if self._admin is None:
            path = self._url.path if self._url.hostname else f"/{SUPERUSER_DATABASE}"
            self._admin = await asyncpg.connect(urlunsplit(self._url._replace(scheme="postgresql", path=path)))
        await self._admin.execute(sql)


async def migrate(url: str) -> None:
    """Bring a database to the newest schema."""
    from app.drivers.postgres.migrations import upgrade  # noqa: PLC0415 - unit tests need no SQLAlchemy

    await upgrade(url)
