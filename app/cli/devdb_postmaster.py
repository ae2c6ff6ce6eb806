"""One running PostgreSQL server process: who it is, whether it is ready, how it is stopped.

A server is a child of this process, or one found running on the data folder after the process that started it was
killed. Owns the pid file's reading; decides nothing about when to start. Used by `devdb`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

StopMode = Literal["smart", "fast", "immediate"]

_SIGNALS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
_POLL_SECONDS = 0.01
_STATUS_LINE = 7  # of postmaster.pid, counted from 0: `starting`, `ready`, `stopping`
_LAST_WAIT = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Postmaster:
    """A server process on `cluster`; `child` is None when another process started it."""

    pid: int
    cluster: Path
    child: subprocess.Popen[bytes] | None = None

    @classmethod
    def find(cls, cluster: Path) -> Postmaster | None:
        """Give the server that runs on `cluster`, None when its pid file is absent, stale or names another process."""
        lines = _pid_file(cluster)
        if not lines or not lines[0].strip().isdecimal():
            return None
        found = cls(pid=int(lines[0]), cluster=cluster)
        return found if found.is_alive() else None

    def is_alive(self) -> bool:
        """Whether the process runs and is the server of this cluster, not a later process with its number."""
        if self.child is not None:
            return self.child.poll() is None
        return os.fsencode(self.cluster) in _command_line(self.pid)

    def status(self) -> str:
        """Give what the server says of itself in its pid file, "" when it has not said anything yet."""
        lines = _pid_file(self.cluster)
        if len(lines) <= _STATUS_LINE or lines[0].strip() != str(self.pid):
            return ""
        return lines[_STATUS_LINE].strip()

    def wait_ready(self, within: timedelta) -> bool:
        """Wait until the server takes connections; False when it ended, is ending or took longer than `within`."""
        for _ in _until(within):
            status = self.status()
            if status == "ready":
                return True
            if status == "stopping" or not self.is_alive():
                return False
        return False

    def stop(self, mode: StopMode, within: timedelta) -> None:
        """End the server; past `within` without the checkpoint, and in the last resort by force."""
        self.send(_SIGNALS[mode])
        if self.wait_gone(within):
            return
        self.send(signal.SIGQUIT)
        if not self.wait_gone(_LAST_WAIT):
            self.kill()

    def kill(self) -> None:
        """End the postmaster as a power cut would; its sessions notice by themselves."""
        self.send(signal.SIGKILL)
        self.wait_gone(_LAST_WAIT)

    def send(self, what: signal.Signals) -> None:
        """Send a signal to the process; one that has gone is no error."""
        if self.child is not None:
            self.child.send_signal(what)
        elif self.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, what)

    def wait_gone(self, within: timedelta) -> bool:
        """Wait until the process has ended, at most `within`."""
        return any(not self.is_alive() for _ in _until(within))


def disown_pid_file(cluster: Path) -> None:
    """Make the pid file of a dead server harmless, whose number may belong to some other process by now.

    PostgreSQL would take that process for a running server and refuse. The file itself must stay: it names the shared
    memory by which PostgreSQL sees sessions that outlived a killed server. The number of its own parent it disregards.
    """
    lines = _pid_file(cluster)
    if lines:
        with (cluster / "postmaster.pid").open("r+") as file:
            file.write("\n".join([str(os.getpid()), *lines[1:], ""]))
            file.truncate()


def _pid_file(cluster: Path) -> list[str]:
    try:
        return (cluster / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _command_line(pid: int) -> bytes:
    """Give the process's command line, empty when there is no such process."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return b""
    shown = subprocess.run(["/bin/ps", "-ww", "-p", str(pid), "-o", "command="], capture_output=True, check=False)
    return shown.stdout


def _until(within: timedelta) -> Iterator[None]:
    """Yield at once and then every few milliseconds until `within` has passed."""
    deadline = time.monotonic() + within.total_seconds()
    yield
    while time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        yield
