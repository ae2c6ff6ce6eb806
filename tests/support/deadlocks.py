"""Deadlocks as the server knows them: it counts those that the product repeats in silence, and logs both statements.

What a client is told names processes and locks; the statements stand in the server's log alone, which is read where
the server is one of ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.support.postgres import run_cluster

Fetch = Callable[[str], Awaitable[list[Any]]]

_COUNT = "select deadlocks from pg_stat_database where datname = current_database()"
_ENTRY = re.compile(r"^\S+ \S+ \S+ \[(\d+)\] ([A-Z]+):  ")
_MORE = {"DETAIL", "HINT", "CONTEXT", "STATEMENT"}


class Deadlocks:
    """The deadlocks of one database since this was made."""

    def __init__(self, fetch: Fetch, log: Path | None = None) -> None:
        self._fetch = fetch
        self._log = log if log is not None or os.environ.get("TEST_DATABASE_URL") else run_cluster().cluster.log
        self._from = self._log.stat().st_size if self._log is not None and self._log.exists() else 0

    async def none(self, *told: object) -> None:
        """Fail, with what the server says of each, if there was one; `told` is what clients were told of any."""
        ((count,),) = await self._fetch(_COUNT)
        assert count == 0, f"{count} deadlocks\n{self.said()}\n{_lines(told)}"
        assert not told, f"clients were told of deadlocks or serialization failures\n{_lines(told)}\n{self.said()}"

    def said(self) -> str:
        """Give what the server's log has on deadlocks since, of any database, with both statements of each."""
        if self._log is None or not self._log.exists():
            return "the server's log, which has both statements, is not at hand"
        with self._log.open("rb") as file:
            file.seek(self._from)
            text = file.read().decode(errors="replace")
        return "\n".join(deadlocks_in(text)) or f"nothing of them in {self._log}"


def deadlocks_in(log: str) -> list[str]:
    """Give each deadlock's entry of a log: the error, its details and its statement, of one process in a row."""
    found: list[str] = []
    inside: str | None = None
    for line in log.splitlines():
        entry = _ENTRY.match(line)
        if entry is None:
            if inside is not None:
                found[-1] += f"\n{line}"
            continue
        pid, level = entry.groups()
        if level == "ERROR" and line.endswith("deadlock detected"):
            inside = pid
            found.append(line)
        elif inside == pid and level in _MORE:
            found[-1] += f"\n{line}"
        else:
            inside = None
    return found


def _lines(told: tuple[object, ...]) -> str:
    return "\n".join(f"{error!r} {getattr(error, 'detail', None) or getattr(error, '__cause__', '')}" for error in told)
