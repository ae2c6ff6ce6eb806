"""Is this process alive, started, ready? The answers behind `/livez`, `/startupz` and `/readyz`.

Liveness asks nobody: a database outage must not restart a fleet. Readiness names the kind of trouble in one word and
never a host, an address or a version. Used by the API's own listener and by the admin listener.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from ..domain.errors import OutlastError, SchemaOutdated

# A database that takes longer than this to say hello serves nobody well.
PING_SECONDS = 1.0


class Trouble(StrEnum):
    """Why a process should get no traffic."""

    STARTING = "starting"
    DRAINING = "draining"
    DATABASE = "database"
    SCHEMA = "schema"
    LOOP = "loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether a process should get traffic; `trouble` is None when it should."""

    trouble: Trouble | None = None

    @property
    def status(self) -> int:
        """Give the HTTP status of the answer."""
        return 200 if self.trouble is None else 503

    @property
    def document(self) -> dict[str, str]:
        """Give the body of the answer."""
        if self.trouble is None:
            return {"status": "ready"}
        return {"status": "not_ready", "reason": self.trouble.value}


async def check_readiness(
    *, ping: Callable[[], Awaitable[None]], is_started: Callable[[], bool], is_draining: Callable[[], bool]
) -> Readiness:
    """Say whether the process is ready; at most a second after being asked."""
    if is_draining():
        return Readiness(trouble=Trouble.DRAINING)
    if not is_started():
        return Readiness(trouble=Trouble.STARTING)
    try:
        async with asyncio.timeout(PING_SECONDS):
            await ping()
    except SchemaOutdated:
        return Readiness(trouble=Trouble.SCHEMA)
    except (OutlastError, TimeoutError):
        return Readiness(trouble=Trouble.DATABASE)
    return Readiness()
