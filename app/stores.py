"""The stores that settings name: the driver, over it the encryption of payloads, and the outbox that relays publish."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from .domain.errors import SettingsInvalid
from .drivers.memory.driver import MemoryDriver
from .drivers.outbox import OutboxStore, outbox_of
from .drivers.postgres.database import create_engine
from .drivers.postgres.driver import PostgresDriver
from .drivers.postgres.outbox import PostgresOutbox
from .drivers.protocol import JobDriver
from .drivers.refused import REFUSED_SCHEMES, RefusedDriver
from .drivers.sealing.build import sealed_as_set
from .settings import Settings

# What a relay needs of another database: a pass, and a look at it for an operator.
OUTBOX_POOL = 2


def build_driver(settings: Settings) -> JobDriver:
    """Build the driver that the database address names, over it the encryption of payloads; connects to nothing yet.

    Raises:
        SettingsInvalid: there is no address, no driver for it, or no way to encrypt.
    """
    return sealed_as_set(_store(settings), settings)


def _store(settings: Settings) -> JobDriver:
    url = settings.database_url
    if url is None:
        raise SettingsInvalid(
            "OUTLAST_DATABASE_URL is not set", fix="set it to postgresql://user@host/database, or run `outlast dev`"
        )
    scheme = url.partition(":")[0]
    if scheme == "memory":
        return MemoryDriver()
    if scheme in REFUSED_SCHEMES:
        return RefusedDriver(scheme)
    return PostgresDriver(
        create_engine(url, pool_size=settings.pool_size, lease=timedelta(seconds=settings.lease_seconds)),
        schema=settings.db_schema,
        listen_url=settings.listen_url,
        owns_engine=True,
    )


def build_outbox(settings: Settings, driver: JobDriver) -> OutboxStore[Any] | None:
    """Build the outbox that relays publish: beside the jobs, or in the database that OUTLAST_OUTBOX_URL names."""
    if settings.outbox_url is None:
        return outbox_of(driver)
    engine = create_engine(settings.outbox_url, pool_size=OUTBOX_POOL, application_name="outlast outbox")
    return PostgresOutbox.over(engine, schema=settings.db_schema)
