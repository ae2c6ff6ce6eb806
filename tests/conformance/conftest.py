"""Every test of this folder takes `env`, and so runs once per driver."""

from __future__ import annotations

from tests.support.drivers import driver_kind, driver_url, env

__all__ = ["driver_kind", "driver_url", "env"]
