"""The parent of several worker processes: one signal for all, one admin listener for all, the worst exit code of all.

Runs no job and opens no database itself. Each child is a whole `outlast worker` with a row and an admin port of its
own; the port that is configured shows their sum. Run by the command line.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import __version__
from .bootstrap import build_telemetry, code_version
from .control.render import Document
from .domain.errors import SettingsInvalid
from .http.admin import AdminListener, AdminProbes
from .http.family import Family
from .lifecycle.children import Children
from .lifecycle.shutdown import Shutdown
from .settings import Settings, address_of

# Past their budget children have two seconds until their watchdogs end them; what is there after that is killed.
_CHILDREN_SECONDS = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _FamilyDrain:
    """The children's drains, and beginning them."""

    family: Family
    begin: Callable[[str], object]

    def here(self) -> Document:
        return self.family.drain()

    def start(self, *, by: str) -> Document:
        self.begin(f"asked for by {by}")
        return self.here()


class Parent:
    """Runs `count` workers with the same settings; `flags` are those the parent was called with."""

    def __init__(
        self, settings: Settings, count: int, flags: Sequence[str], *, announce: Callable[[str], None]
    ) -> None:
        if str(settings.database_url).startswith("memory:"):
            raise SettingsInvalid(
                "a store in memory is one process's own", fix="use PostgreSQL, or leave --processes at 1"
            )
        self._flags = tuple(flags)
        self._announce = announce
        self._host, port = address_of(settings.admin_bind, "OUTLAST_ADMIN_BIND")
        telemetry = self._telemetry = build_telemetry(settings)
        self._shutdown = Shutdown(drain_seconds=settings.drain_seconds + _CHILDREN_SECONDS, telemetry=telemetry)
        environment = {**os.environ, "OUTLAST_ADMIN_BIND": "127.0.0.1:0", "OUTLAST_PROCESSES": "1"}
        self._children = Children(
            self._command, count, environment=environment, shutdown=self._shutdown, telemetry=telemetry
        )
        family = Family(self._children.at, wanted=lambda: self._children.wanted, status=self._shutdown.status)
        probes = AdminProbes(
            is_live=lambda: True,  # a child whose loop hangs ends itself and is started again
            is_started=lambda: len(self._children.at()) == self._children.wanted,
            readiness=family.readiness,
            metrics=family.metrics,
            drain=_FamilyDrain(family=family, begin=self._shutdown.request),
            fleet=family.fleet,
            version={"version": __version__, "code_version": code_version(settings)},
        )
        self._admin = AdminListener(probes, host=self._host, port=port)

    def run(self) -> int:
        """Run until told to leave and every child has; gives the exit code. Main thread only."""
        with self._shutdown.installed():
            self._admin.start()
            try:
                code = self._children.run(on_up=self._up)
            finally:
                self._admin.stop()
            self._telemetry.drain_ended(exit_code=code, seconds=self._drained_for())
        return code

    def _drained_for(self) -> float:
        """Give the seconds since they were told; children that all left by themselves were not."""
        notice = self._shutdown.notice
        return 0.0 if notice is None else time.monotonic() - notice.started

    def _up(self) -> None:
        shown = f"[{self._host}]" if ":" in self._host and not self._host.startswith("[") else self._host
        self._announce(f"http://{shown}:{self._admin.port}")

    def _command(self, lifeline: int) -> Sequence[str]:
        return (sys.executable, "-m", str(__package__), "worker", *self._flags, "--lifeline", str(lifeline))
