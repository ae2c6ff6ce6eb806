"""The PostgreSQL of the tests: one cluster and one migrated template per run, databases that tests hand on.

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
from tests.support.handover import Keeper, LeftBehind

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


def lock_of(cluster: DevPostgres) -> Path:
    """Give the file by which a run's workers do a thing but once."""
    return cluster.cluster.root.with_suffix(".lock")


def start_once(cluster: DevPostgres) -> None:
    """Start the run's cluster unless another worker has; the first to come does it."""
    with _only_one(lock_of(cluster)):
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
    lock_of(cluster).unlink(missing_ok=True)


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Server:
    """A running server as an administrator sees it: makes, hands out and drops databases.

    Its connections live on a thread with a loop of its own, so that synchronous fixtures can use them whatever loop a
    test runs on. Workers that name the same file as `shared` migrate one template between them, which stays.
    """

    def __init__(self, url: str, *, worker: str, shared: Path | None = None) -> None:
        self._url = urlsplit(url)
        self._worker = worker
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tests.postgres", daemon=True)
        self._thread.start()
        self._admin: asyncpg.Connection | None = None
        self._shared = shared
        self._template: str | None = None
        self._keepers: dict[str, Keeper] = {}
        self._idle: list[str] = []

    def url(self, database: str) -> str:
        """Give the SQLAlchemy URL of a database."""
        return urlunsplit(self._url._replace(scheme="postgresql+asyncpg", path=f"/{database}"))

    def execute(self, sql: str) -> None:
        """Run one statement outside a transaction, on the server's own database."""
        self.wait(self._execute(sql))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end on the server's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def take(self) -> str:
        """Give the name of a migrated database without a trace of a test: a new one, or one handed back."""
        if self._idle:
            return self._idle.pop()
        name = self.create()
        keeper = Keeper(self.url(name))
        self.wait(keeper.learn())
        self._keepers[name] = keeper
        return name

    def give_back(self, database: str) -> None:
        """Take back what `take` gave: made as new for the next test, or dropped if more than its rows was changed."""
        try:
            self.wait(self._keepers[database].make_fresh())
        except LeftBehind:
            self._end(database)
        else:
            self._idle.append(database)

    def create(self, *, migrated: bool = True) -> str:
        """Create a database and give its name; a migrated one is a copy of the template."""
        name = f"t_{self._worker}_{uuid.uuid4().hex[:12]}"
        template = self._migrated_template() if migrated else "template1"
        self.execute(f"create database {name} template {template} strategy file_copy")
        return name

    def drop(self, database: str) -> None:
        """Drop a database, cutting what is still connected."""
        self.execute(f"drop database if exists {database} with (force)")

    def close(self) -> None:
        """Drop what is kept here, and end the connections and their thread."""
        for name in list(self._keepers):
            self._end(name)
        if self._template is not None and self._shared is None:
            self.drop(self._template)
        if self._admin is not None:
            self.wait(self._admin.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _end(self, database: str) -> None:
        self.wait(self._keepers.pop(database).leave())
        self.drop(database)

    def _migrated_template(self) -> str:
        if self._template is None and self._shared is None:
            self._template = self._migrated(f"template_{self._worker}_{uuid.uuid4().hex[:8]}")
        elif self._template is None and self._shared is not None:
            with _only_one(self._shared):
                self._template = self._migrated("template_migrated")
        assert self._template is not None
        return self._template

    def _migrated(self, name: str) -> str:
        if not self.wait(self._exists(name)):
            half = f"half_{uuid.uuid4().hex[:8]}"
            self.execute(f"create database {half}")
            self.wait(migrate(self.url(half)))
            self.execute(f"alter database {half} rename to {name}")
        return name

    async def _exists(self, database: str) -> bool:
        admin = await self._administrator()
        return bool(await admin.fetchval("select exists (select from pg_database where datname = $1)", database))

    async def _execute(self, sql: str) -> None:
        await (await self._administrator()).execute(sql)

    async def _administrator(self) -> asyncpg.Connection:
        if self._admin is None:
            path = self._url.path if self._url.hostname else f"/{SUPERUSER_DATABASE}"
            self._admin = await asyncpg.connect(urlunsplit(self._url._replace(scheme="postgresql", path=path)))
        return self._admin


async def migrate(url: str) -> None:
    """Bring a database to the newest schema."""
    from app.drivers.postgres.migrations import upgrade  # noqa: PLC0415 - unit tests need no SQLAlchemy

    await upgrade(url)
