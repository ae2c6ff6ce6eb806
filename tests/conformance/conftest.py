"""Every test of this folder takes `env`, or `outbox` on top of it, and so runs once per driver."""

from __future__ import annotations

from tests.support.drivers import driver_kind, driver_url, env
from tests.support.outbox import outbox, passes, way

__all__ = ["driver_kind", "driver_url", "env", "outbox", "passes", "way"]
