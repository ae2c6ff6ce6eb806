"""Alembic's entry: runs the migrations of one schema.

Takes metadata, schema and connection from the Config object that `drivers/postgres/migrations.py` passes. Run bare
(`alembic check` in a checkout) it imports `app` and connects to OUTLAST_DATABASE_URL itself. Decides nothing else.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Literal

from alembic import context
from sqlalchemy import Connection, text

Kind = Literal["schema", "table", "column", "index", "unique_constraint", "foreign_key_constraint", "check_constraint"]

config = context.config
attributes = config.attributes


def include_name(
    name: str | None,
    kind: Literal[
        "schema", "table", "column", "index", "unique_constraint", "foreign_key_constraint", "check_constraint"
    ],
    _parents: object,
) -> bool:
    """Compare our schema and no other."""
    return kind != "schema" or name == attributes["schema"]


def has_schema(connection: Connection, schema: str) -> bool:
    found = connection.scalar(text("select 1 from pg_namespace where nspname = :schema"), {"schema": schema})
    return found is not None


def run(connection: Connection | None) -> None:
    schema: str = attributes["schema"]
    options: dict[str, Any] = {
        "target_metadata": attributes["metadata"],
        "version_table_schema": schema,
        "include_schemas": True,
        "include_name": include_name,
    }
    if connection is None:
        context.configure(dialect_name="postgresql", literal_binds=True, transaction_per_migration=True, **options)
    else:
        context.configure(connection=connection, **options)
    with context.begin_transaction():
        if connection is None:
            context.execute(f'create schema if not exists "{schema}"')
        elif not has_schema(connection, schema):
            # Looked up first: `if not exists` alone asks for the right to create schemas even when it is there.
            connection.execute(text(f'create schema "{schema}"'))
        context.run_migrations()


async def run_bare() -> None:
    from app.drivers.postgres import migrations  # noqa: PLC0415  only a checkout has `app`

    url = os.environ.get("OUTLAST_DATABASE_URL")
    if not url:
        raise SystemExit(
            "OUTLAST_DATABASE_URL is not set.\nfix: export OUTLAST_DATABASE_URL=postgresql://user@host/database"
        )
    async with migrations.connection_for(url) as connection:
        await connection.run_sync(run)


if "metadata" not in attributes:
    from app.drivers.postgres.migrations import attributes_of

    attributes.update(attributes_of(os.environ.get("OUTLAST_SCHEMA", "outlast")))

if context.is_offline_mode():
    run(None)
elif "connection" in attributes:
    run(attributes["connection"])
else:
    asyncio.run(run_bare())
