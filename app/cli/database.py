"""`outlast migrate`: the schema, up and down, by any number of processes at once."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ..domain.errors import DriverUnavailable
from .report import SCHEMA_TOO_OLD, say

if TYPE_CHECKING:
    from ..settings import Settings

migrate = typer.Typer(no_args_is_help=True)

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_To = Annotated[str, typer.Option(help="Revision to reach.")]
_DownTo = Annotated[str, typer.Option("--to", help="Revision to go back to; `base` removes everything.")]
_Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
_Wait = Annotated[float, typer.Option("--wait-db", help="Seconds to wait for the database to answer.")]
_RETRY_SECONDS = 0.5


@migrate.command()
def up(*, db: _Db = None, to: _To = "head", wait_db: _Wait = 0.0) -> None:
    """Bring the schema up to date. Safe to run from any number of processes at once."""
    settings = _settings(db)
    asyncio.run(_when_reachable(settings, wait_db))
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
def status(*, db: _Db = None, as_json: _Json = False, wait_db: _Wait = 0.0) -> None:
    """Say which revision the schema has and which the code wants; exit code 78 when it is behind."""
    settings = _settings(db)
    asyncio.run(_when_reachable(settings, wait_db))
    current, head = asyncio.run(_status(settings))
    if as_json:
        print(json.dumps({"current": current, "head": head, "is_current": current == head}))
    else:
        print(f"current {current or 'none'}, head {head}")
    if current != head:
        raise typer.Exit(SCHEMA_TOO_OLD)


@migrate.command()
def sql(*, to: _To = "head") -> None:
    """Print the SQL of an upgrade from nothing, for people who apply it by hand."""
    from ..bootstrap import migration_sql

    print(migration_sql(_settings(None), to))


def _settings(db: str | None) -> Settings:
    from ..settings import Settings

    return Settings.read(database_url=db)


async def _upgrade(settings: Settings, to: str) -> None:
    from ..bootstrap import upgrade_schema

    await upgrade_schema(settings, to)


async def _downgrade(settings: Settings, to: str) -> None:
    from ..bootstrap import downgrade_schema

    await downgrade_schema(settings, to)


async def _status(settings: Settings) -> tuple[str | None, str]:
    from ..bootstrap import schema_status

    return await schema_status(settings)


async def _when_reachable(settings: Settings, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            await _status(settings)
        except DriverUnavailable:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            return
