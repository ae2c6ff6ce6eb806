"""Fixtures of the client's tests: the application of the HTTP tests, and a client that does not try for long."""

from __future__ import annotations

from datetime import timedelta

from app.client import Patience
from tests.http.conftest import api, driver_kind, driver_url, each_api, env, locked, memory

__all__ = ["PROMPT", "api", "driver_kind", "driver_url", "each_api", "env", "locked", "memory"]

PROMPT = Patience(
    timeout=timedelta(seconds=10),
    deadline=timedelta(seconds=10),
    first_pause=timedelta(milliseconds=1),
    longest_pause=timedelta(milliseconds=20),
)
