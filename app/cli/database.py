"""`outlast migrate`: the schema, up and down, by any number of processes at once."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..domain.errors import DriverUnavailable
from .durations import seconds
from .report import SCHEMA_TOO_OLD, say

if TYPE_CHECKING:
    from ..settings import Settings

migrate = typer.Typer(no_args_is_help=True)

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_To = Annotated[str, typer.Option(help="Revision to reach.")]
_DownTo = Annotated[str, typer.Option("--to", help="Revision to go back to; `base` removes everything.")]
_Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_WaitDb = Annotated[str, typer.Option("--wait-db", help="Seconds to wait for the database to answer: `60s`.")]
_Wait = Annotated[str, typer.Option(help="Seconds to wait for somebody else to bring the schema up to date: `300s`.")]
_RETRY_SECONDS = 0.5


@migrate.command()
def up(*, db: _Db = None, to: _To = "head", wait_db: _WaitDb = "0s") -> None:
    """Bring the schema up to date. Safe to run from any number of processes at once."""
    settings = _settings(db)
    asyncio.run(_when_reachable(settings, seconds(wait_db)))
    asyncio.run(_upgrade(settings, to))
    say(f"schema {settings.db_schema} is at {asyncio.run(_status(settings))[0]}")


@migrate.command()
def down(*, to: _DownTo, db: _Db = None, yes: _Yes = False) -> None:
    """Take the schema back. Data of what is removed is lost."""
    settings = _settings(db)
    if not yes:
        typer.confirm(f"Take schema {settings.db_schema} down to {to}? Its data goes with it", abort=True, err=True)
    asyncio.run(_downgrade(settings, to))
    say(f"schema {settings.db_schema} is at {asyncio.run(_status(settings))[0] or 'base'}")


@migrate.command()
def status(*, db: _Db = None, as_json: _Json = False, wait_db: _WaitDb = "0s", wait: _Wait = "0s") -> None:
    """Say which revision the schema has and which the code wants; exit code 78 when it is behind."""
    settings, within = _settings(db), seconds(wait)
    asyncio.run(_when_reachable(settings, seconds(wait_db)))
    current, head = asyncio.run(_when_current(settings, within))
    if as_json:
        print(json.dumps({"current": current, "head": head, "is_current": _is_enough(current, head)}))
    else:
        print(f"current {current or 'none'}, head {head}")
    if not _is_enough(current, head):
        raise typer.Exit(SCHEMA_TOO_OLD)


@migrate.command()
def sql(*, to: _To = "head") -> None:
    """Print the SQL of an upgrade from nothing, for people who apply it by hand."""
    from ..schema import migration_sql

    print(migration_sql(_settings(None), to))


def _settings(db: str | None) -> Settings:
    from ..settings import Settings

    return Settings.read(database_url=db)


async def _upgrade(settings: Settings, to: str) -> None:
    from ..schema import upgrade_schema

    await upgrade_schema(settings, to)


async def _downgrade(settings: Settings, to: str) -> None:
    from ..schema import downgrade_schema

    await downgrade_schema(settings, to)


async def _status(settings: Settings) -> tuple[str | None, str]:
    from ..schema import schema_status

    return await schema_status(settings)


def _is_enough(current: str | None, head: str) -> bool:
    """Say whether the code can run on a schema: its own or a later one; revisions sort as they follow each other."""
    return current is not None and current >= head


async def _when_current(settings: Settings, within: float) -> tuple[str | None, str]:
    """Wait for the schema to be enough, at most so many seconds, and give its revision and the code's."""
    deadline = time.monotonic() + within
    while True:
        current, head = await _status(settings)
        if _is_enough(current, head) or time.monotonic() >= deadline:
            return current, head
        await asyncio.sleep(_RETRY_SECONDS)


async def _when_reachable(settings: Settings, within: float) -> None:
    deadline = time.monotonic() + within
    while True:
        try:
            await _status(settings)
        except DriverUnavailable:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            return
