"""Columns of the metadata, said shortly: needed and optional ones, instants, and what every token carries.

Owns no table. Used by `tables` and `tables_runs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column, DateTime, Integer, SmallInteger, Text
from sqlalchemy.types import TypeEngine

_Type = type[TypeEngine[Any]] | TypeEngine[Any]

INSTANT = DateTime(timezone=True)


def token() -> Iterator[Column[Any]]:
    """Give what a token carries wherever it is."""
    yield from needed(queue=Text, rank=SmallInteger, name_id=Integer, attempt=SmallInteger, claim_no=Integer)
    yield from needed(crashes=SmallInteger, interrupts=SmallInteger)


def needed(**columns: _Type) -> Iterator[Column[Any]]:
    """Give columns that are never null."""
    return (Column(name, kind, nullable=False) for name, kind in columns.items())


def optional(**columns: _Type) -> Iterator[Column[Any]]:
    """Give columns that may be null."""
    return (Column(name, kind, nullable=True) for name, kind in columns.items())
