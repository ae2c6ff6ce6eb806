"""A settle's lock order where the plan is not ours to choose.

A settle deletes claims as its plan reads them: by their ids, because every connection of ours starts with the other
ways of reading switched off. Behind a pooler that drops these settings, or on an engine somebody else made, it might
read the table instead, and lock its claims in another order than a reaper does. There, and only there, it locks them
first. Called by the statements that settle.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .database import Database

_READ = re.compile(r"gone as \(\n  delete from outlast\.running r\n  where r\.job_id = any\(\$1::uuid\[\]\)")
_LOCKED = """\
locked as materialized (
  select r.job_id from outlast.running r where r.job_id = any($1::uuid[]) and r.seq = any($2::bigint[])
  order by r.job_id for update),
gone as (
  delete from outlast.running r
  where r.job_id = any(array(select job_id from locked))"""


class Settling(NamedTuple):
    """A statement that settles, in its two forms."""

    usual: str
    locking_first: str

    def on(self, db: Database) -> str:
        """Give the form that keeps to the lock order on this database, for the schema at hand."""
        return db.in_schema(self.usual if db.plans_are_ours else self.locking_first)


def in_both_forms(sql: str) -> Settling:
    """Give a statement that settles in both forms.

    Raises:
        ValueError: the statement does not read its claims as a settle does.
    """
    locking_first, count = _READ.subn(lambda _: _LOCKED, sql)
    if count != 1:
        raise ValueError("this statement settles nothing, or not in the way it did")
    return Settling(sql, locking_first)
