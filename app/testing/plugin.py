"""The pytest plugin: the fixture `env`, where to run it, and the marker `outlast`.

Loaded by pytest where the distribution is installed; in a checkout with `-p app.testing.plugin`. `env` is in memory
unless the test, or the option `outlast_store` of the configuration, asks for `postgres`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .env import Env
    from .stores import KitStore

OPTION = "outlast_store"
MARKER = "outlast"

_SCHEMA = pytest.StashKey[str]()
_URL = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addini(OPTION, "where the fixture `env` runs: memory or postgres", default="memory")


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line(
        "markers", f"{MARKER}(store=..., jobs=[...], start=...): where `env` runs, what it knows, when its time begins"
    )


async def _env(request: pytest.FixtureRequest) -> AsyncIterator[Env]:
    """Give a test a store, a clock that stands still, and workers that run when told to."""
    from .env import PATIENCE, open_env  # noqa: PLC0415 - only when a test asks for it

    asked = _asked(request)
    store = await _store(request, asked.pop("store"))
    async with open_env(
        store, jobs=asked.get("jobs", ()), start=asked.get("start"), patience=asked.get("patience", PATIENCE)
    ) as opened:
        yield opened


def _without_asyncio() -> None:
    """Say what is missing."""
    from ..domain.errors import SettingsInvalid  # noqa: PLC0415 - only when a test asks for it

    raise SettingsInvalid("the fixture env needs pytest-asyncio", fix="install pytest-asyncio")


if find_spec("pytest_asyncio") is None:
    env: Any = pytest.fixture(name="env")(_without_asyncio)
else:
    import pytest_asyncio

    env = pytest_asyncio.fixture(name="env")(_env)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Drop the schema that this run made."""
    stash = session.config.stash
    if _SCHEMA in stash:
        from .stores import PostgresStore  # noqa: PLC0415 - only when there is one

        schema, url = stash[_SCHEMA], stash[_URL]
        del stash[_SCHEMA]

        async def drop() -> None:
            await PostgresStore(url, schema=schema).drop()

        asyncio.run(drop())


def _asked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Give what a test asks for: by parameter, by marker, or by the configuration, in this order."""
    from ..domain.errors import SettingsInvalid  # noqa: PLC0415 - only when a test asks for it

    marker = request.node.get_closest_marker(MARKER)
    asked: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    wrong = set(asked) - {"store", "jobs", "start", "patience"}
    if wrong or (marker is not None and marker.args):
        raise SettingsInvalid(
            f"the marker {MARKER} takes no {', '.join(sorted(wrong)) or 'positional values'}",
            fix=f"write @pytest.mark.{MARKER}(store=..., jobs=[...], start=..., patience=...)",
        )
    default = "memory"
    with suppress(ValueError, KeyError):  # where only the fixture was imported, there is no option
        default = str(request.config.getini(OPTION))
    asked["store"] = getattr(request, "param", asked.get("store", default))
    return asked


async def _store(request: pytest.FixtureRequest, kind: object) -> KitStore:
    from ..domain.errors import SettingsInvalid  # noqa: PLC0415 - only when a test asks for it
    from .stores import MEMORY, POSTGRES, MemoryStore, PostgresStore, postgres_url  # noqa: PLC0415 - same

    if kind == MEMORY:
        return MemoryStore()
    if kind != POSTGRES:
        raise SettingsInvalid(f"{kind!r} is no store of the test kit", fix=f"ask for {MEMORY!r} or {POSTGRES!r}")
    stash, url = request.config.stash, postgres_url(dict(os.environ))
    store = PostgresStore(url, schema=stash.get(_SCHEMA, None))
    if _SCHEMA not in stash:
        await store.make()
        stash[_SCHEMA], stash[_URL] = store.schema, url
    return store
