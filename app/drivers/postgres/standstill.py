"""A schema whose clock stands where it is told to: the store of a test kit in PostgreSQL.

The schema is made, emptied and dropped here, and the function that gives its time is replaced by a constant. Never
used on a schema that anything but tests works in. Called by the test kit's stores.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from ...domain.errors import SettingsInvalid
from .database import checked_schema
from .migrations import upgrade

# What a driver may remember for as long as it lives; the rest is emptied.
_KEPT = ("alembic_version", "job_name")
_MARK = "outlast_test"
_TABLES = "select tablename from pg_tables where schemaname = '{schema}' and tablename not in ({kept})"


class Standstill:
    """One schema of tests. Its name begins with `outlast_test`, so that no other is ever emptied or dropped."""

    def __init__(self, engine: AsyncEngine, schema: str) -> None:
        """Take a schema.

        Raises:
            SettingsInvalid: its name is not that of a schema of tests.
        """
        if not re.match(_MARK, schema):
            raise SettingsInvalid(
                f"the schema {schema!r} is not one of tests, which are emptied",
                fix=f"let its name begin with {_MARK!r}, or leave it out",
            )
        self._engine = engine
        self._schema = checked_schema(schema)

    async def make(self, url: str) -> None:
        """Make the schema with everything in it."""
        await upgrade(url, schema=self._schema)

    async def stop_clock(self, now: datetime) -> None:
        """Let the schema's clock stand at `now`."""
        # Language sql and one expression, like the real one: the planner inlines it, cached plans are made anew.
        await self._execute(
            f'create or replace function "{self._schema}".clock() returns timestamptz language sql stable'
            f" parallel safe as $$select timestamptz '{now.astimezone(UTC).isoformat()}'$$"
        )

    async def empty(self) -> None:
        """Delete every row."""
        async with self._engine.connect() as connection:
            kept = ", ".join(f"'{table}'" for table in _KEPT)
            found = await connection.exec_driver_sql(_TABLES.format(schema=self._schema, kept=kept))
            tables = ", ".join(f'"{self._schema}"."{table}"' for (table,) in found)
            await connection.exec_driver_sql(f"truncate {tables}")
            await connection.commit()

    async def end_connections(self, application_name: str) -> None:
        """End the connections of a process that is gone."""
        await self._execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"  # noqa: S608 - a name of ours
            f" where application_name = '{application_name}' and pid <> pg_backend_pid()"
        )

    async def drop(self) -> None:
        """Drop the schema with everything in it."""
        await self._execute(f'drop schema if exists "{self._schema}" cascade')

    async def _execute(self, sql: str) -> None:
        async with self._engine.connect() as connection:
            await connection.exec_driver_sql(sql)
            await connection.commit()
