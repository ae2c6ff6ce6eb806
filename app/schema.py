"""The database's schema, from settings: up, down, where it stands, and its SQL. Called by the command line."""

from __future__ import annotations

from .domain.errors import SettingsInvalid
from .drivers.postgres import migrations
from .settings import Settings


async def upgrade_schema(settings: Settings, revision: str = "head") -> None:
    """Bring the schema up to a revision."""
    await migrations.upgrade(_database(settings), schema=settings.db_schema, revision=revision)


async def downgrade_schema(settings: Settings, revision: str) -> None:
    """Take the schema down to a revision."""
    await migrations.downgrade(_database(settings), schema=settings.db_schema, revision=revision)


async def schema_status(settings: Settings) -> tuple[str | None, str]:
    """Give the schema's revision and the newest one this code knows."""
    status = await migrations.status(_database(settings), schema=settings.db_schema)
    return status.current, status.head


def migration_sql(settings: Settings, revision: str) -> str:
    """Give the SQL of an upgrade from nothing."""
    return migrations.sql(schema=settings.db_schema, revision=revision)


def _database(settings: Settings) -> str:
    if settings.database_url is None or not settings.database_url.startswith("postgres"):
        raise SettingsInvalid(
            "migrations need a PostgreSQL address", fix="set OUTLAST_DATABASE_URL=postgresql://… or pass --db"
        )
    return settings.database_url
