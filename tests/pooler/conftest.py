"""Behind a pooler: this folder's tests look through it, and from beside it."""

from __future__ import annotations

from tests.postgres.conftest import arena

__all__ = ["arena"]
