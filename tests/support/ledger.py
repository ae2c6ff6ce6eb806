"""The history that does not share fate with the database: one file per process, appended to line by line.

Handlers record what they really do, whatever the store says of it; tests record what they do to the processes. The
files of a folder merge into one history, in the order of a clock that all processes of a machine share. Gates in the
same folder hold handlers where a test wants them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = "LEDGER_DIR"  # tells a process of ours where its ledger is
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_GATE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line. `epoch` is the claim number; `mono` is seconds on the clock that the machine's processes share."""

    op: str
    type: str
    mono: float
    wall: float
    pid: int
    job: str | None = None
    epoch: int | None = None
    attempt: int | None = None
    detail: dict[str, Any]


class Ledger:
    """The ledger and the gates of one test, as one process writes and reads them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of_process(cls) -> Ledger:
        """Give the ledger this process was told to write."""
        return cls(Path(os.environ[FOLDER]))

    def record(
        self,
        op: str,
        kind: str = "info",
        *,
        job: object = None,
        epoch: int | None = None,
        attempt: int | None = None,
        **detail: object,
    ) -> float:
        """Append one line, whole or not at all, and give its time."""
        mono = time.monotonic()
        line = {
            "op": op,
            "type": kind,
            "mono": mono,
            "wall": time.time(),
            "pid": os.getpid(),
            "boot_id": _BOOT.read_text().strip() if _BOOT.is_file() else "",
            "job": None if job is None else str(job),
            "epoch": epoch,
            "attempt": attempt,
            "detail": detail,
        }
        path = self._folder / f"{os.getpid()}.jsonl"
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)
        return mono

    def events(self, op: str | None = None, *, job: object = None) -> list[Event]:
        """Give the merged history, or the part of it with an operation or a job."""
        found = []
        for path in self._folder.glob("*.jsonl"):
            for line in path.read_text().splitlines():
                fields = json.loads(line)
                del fields["boot_id"]  # one machine, one boot
                found.append(Event(**fields))
        found.sort(key=lambda event: event.mono)
        return [event for event in found if (op is None or event.op == op) and (job is None or event.job == str(job))]

    def open(self, gate: str) -> None:
        """Let through, from now on, whoever comes to a gate."""
        (self._folder / f"{gate}.open").touch()

    def is_open(self, gate: str) -> bool:
        """Say whether a gate is open."""
        return (self._folder / f"{gate}.open").exists()

    def pass_gate(self, gate: str, *, unless: Callable[[], bool] = lambda: False) -> bool:
        """Block until a gate is open; False when `unless` came true before. For threads."""
        until = time.monotonic() + _GATE_SECONDS
        while not self.is_open(gate):
            if unless():
                return False
            if time.monotonic() > until:
                raise TimeoutError(f"nobody opened the gate {gate}")
            time.sleep(0.005)
        return True
