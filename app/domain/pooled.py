"""What stands between a process and its store, as a fact to be shown. How it is found out is the driver's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """A pooler on the way to the database, and what has to be done without for that.

    `keeps_statements`: prepared statements are used; else each call sends its text anew. `missing` names session
    settings that did not arrive and that the database has no equal default for.
    """

    keeps_statements: bool
    missing: tuple[str, ...] = ()
