"""The test kit for job authors: `env`, a store and workers under a clock that a test moves, and crash testing.

The pytest plugin `app.testing.plugin` gives the fixture `env`. Nothing is imported before it is used, so that the
plugin costs a test run nothing that does not use it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .crash import crash_everywhere
    from .env import Env, open_env
    from .report import Crash, CrashDifference, CrashReport
    from .stores import MemoryStore, PostgresStore

__all__ = [
    "Crash",
    "CrashDifference",
    "CrashReport",
    "Env",
    "MemoryStore",
    "PostgresStore",
    "crash_everywhere",
    "open_env",
]

_PLACES = {
    "Crash": "report",
    "CrashDifference": "report",
    "CrashReport": "report",
    "Env": "env",
    "MemoryStore": "stores",
    "PostgresStore": "stores",
    "crash_everywhere": "crash",
    "open_env": "env",
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)
