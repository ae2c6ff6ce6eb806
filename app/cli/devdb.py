"""The PostgreSQL that `outlast dev` brings along: a server of one's own in a folder, reached over a Unix socket only.

Owns start, take-over, stop and restart of that one server. It is a child in the caller's process group, so a signal to
the group reaches it too; `supervise` starts it again until `stop` is called, so that a drain can still settle its
runs. Called by `outlast dev` and by the tests; knows nothing of tables.
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import IO, Protocol, Self

from ..domain.errors import DriverUnavailable
from .devdb_account import reachable_root, server_account
from .devdb_cluster import DATABASE, Cluster
from .devdb_postmaster import Postmaster, StopMode

_START_BUDGET = timedelta(seconds=60)  # recovery after a kill included
_RESTART_BUDGET = timedelta(seconds=10)  # under supervision: a drain is waiting
_STOP_BUDGET = timedelta(seconds=10)
_FAILED_RESTARTS = 3
_LOOK_EVERY_SECONDS = 0.05


class Say(Protocol):
    """Takes one line for whoever started the server."""

    def __call__(self, line: str, /) -> None:
        """Show or log the line."""


def _silent(_line: str, /) -> None:
    """Say nothing: the default where nobody reads along."""


class DevPostgres:
    """A PostgreSQL server under `root`; for root in a closed folder its files move elsewhere, and `say` tells where.

    `version` is a major version, None for the bundled server; `durable=False` gives up fsync for the speed of tests;
    `options` are settings of postgresql.conf. Methods block and may be called from any thread.
    """

    def __init__(
        self,
        root: Path,
        *,
        version: str | None = None,
        durable: bool = True,
        options: Mapping[str, str] | None = None,
        say: Say = _silent,
    ) -> None:
        account = server_account()
        self.cluster = Cluster(
            root=reachable_root(root, account),
            account=account,
            version=version,
            is_durable=durable,
            options=dict(options or {}),
        )
        self._wanted_root = root.absolute()
        self._say = say
        self._guard = threading.RLock()
        self._postmaster: Postmaster | None = None
        self._lock_file: IO[bytes] | None = None
        self._supervisor: threading.Thread | None = None
        self._end_supervision = threading.Event()

    def dsn(self, database: str = DATABASE, *, scheme: str = "postgresql+asyncpg") -> str:
        """Give the URL of a database of this server; it need not run yet."""
        return self.cluster.dsn(database, scheme=scheme)

    @property
    def pid(self) -> int | None:
        """The server's process id, None when it does not run."""
        found = self._running()
        return found.pid if found is not None else None

    def start(self) -> None:
        """Start the server, or take over the one left running on this folder; a running one is left alone.

        The first start creates the cluster.

        Raises:
            DriverUnavailable: another process has the folder in use, no server is installed, or it does not start.
        """
        with self._guard:
            if self._postmaster is not None and self._postmaster.is_alive():
                return
            if self.cluster.root != self._wanted_root and self._lock_file is None:
                self._say(f"PostgreSQL's account cannot enter {self._wanted_root}: the data is in {self.cluster.root}")
            self.cluster.lay_out()
            self._take_lock()
            try:
                self._postmaster = self._adopt() or self.cluster.launch(_START_BUDGET)
            except BaseException:
                self._drop_lock()
                raise

    def stop(self, mode: StopMode = "fast", *, within: timedelta = _STOP_BUDGET) -> None:
        """Stop the server and its supervision; one that another process holds is left alone.

        Past `within` it is ended without a checkpoint. A double stop is fine.
        """
        self.retire()
        with self._guard:
            running = self._own()
            if running is not None:
                running.stop(mode, within)
            self._postmaster = None
            self._drop_lock()

    def stop_immediate(self) -> None:
        """Stop without a checkpoint, cutting every session: the next start recovers."""
        self.stop("immediate")

    def kill(self) -> None:
        """Kill the postmaster outright, as a power cut would; it stays down until `start`."""
        self.retire()
        with self._guard:
            running = self._own()
            if running is not None:
                running.kill()
            self._postmaster = None
            self._drop_lock()

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start; supervision, if on, goes on."""
        with self._guard:
            running = self._own()
            if running is not None:
                running.stop(mode, _STOP_BUDGET)
            self._postmaster = None
            self.start()

    def supervise(self) -> None:
        """Start the server again whenever it ends without `stop`, until `stop` or `retire`.

        Ctrl-C in a terminal, or a signal to the process group, reaches PostgreSQL at the same moment as the workers
        which still have runs to settle. Three failed starts in a row end it.
        """
        with self._guard:
            if self._supervisor is None:
                self._end_supervision.clear()
                self._supervisor = threading.Thread(target=self._keep_running, name="outlast.devdb", daemon=True)
                self._supervisor.start()

    def retire(self) -> None:
        """End supervision and leave the server alone: called when the last connection is about to close."""
        self._end_supervision.set()
        with self._guard:
            supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.join()

    def wipe(self) -> None:
        """Stop the server and delete the cluster with everything in it.

        Raises:
            DriverUnavailable: another process has the folder in use.
        """
        self.cluster.lay_out()
        self._take_lock()
        self.stop("immediate")
        self.cluster.remove()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def _running(self) -> Postmaster | None:
        found = self._postmaster or Postmaster.find(self.cluster.data)
        return found if found is not None and found.is_alive() else None

    def _own(self) -> Postmaster | None:
        """Give the running server if the folder is held by this object: nobody stops somebody else's."""
        return None if self._lock_file is None else self._running()

    def _adopt(self) -> Postmaster | None:
        """Take over a server whose starter was killed; one that is on its way out is helped along."""
        left = Postmaster.find(self.cluster.data)
        if left is None:
            return None
        if left.wait_ready(_START_BUDGET):
            self._say(f"PostgreSQL was still running on {self.cluster.root} (pid {left.pid}): taken over")
            return left
        left.stop("fast", _STOP_BUDGET)
        return None

    def _keep_running(self) -> None:
        failures = 0
        while failures < _FAILED_RESTARTS and not self._end_supervision.wait(_LOOK_EVERY_SECONDS):
            with self._guard:
                if self._postmaster is None or self._postmaster.is_alive() or self._end_supervision.is_set():
                    continue
                try:
                    self._postmaster = self.cluster.launch(_RESTART_BUDGET)
                except DriverUnavailable as exc:
                    failures += 1
                    self._say(f"PostgreSQL ended and did not start again: {exc.cause}")
                else:
                    failures = 0
                    self._say("PostgreSQL was stopped from outside: started again")

    def _take_lock(self) -> None:
        """Hold the folder: two processes that supervise one server would undo each other's stops."""
        if self._lock_file is not None:
            return
        lock = (self.cluster.root / "lock").open("a+b")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            lock.close()
            raise DriverUnavailable(
                f"the database in {self.cluster.root} is in use by another process",
                fix="stop the `outlast dev` that has it, or give this one a --data-dir of its own",
            ) from exc
        self._lock_file = lock

    def _drop_lock(self) -> None:
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None
