"""Job names as numbers: tokens carry a small id in the name's place.

A name gets its id once and keeps it, so a process remembers what it has seen. Called by enqueue and claim.
"""

from __future__ import annotations

from collections.abc import Iterable

from .database import Database

# Looked up first: an insert that conflicts burns an id. Sorted, as every insert that may wait for another.
_NAME_IDS = """
with added as (
  insert into outlast.job_name(name)
  select w.name from unnest($1::text[]) w(name)
  where not exists (select from outlast.job_name n where n.name = w.name) order by w.name
  on conflict do nothing returning id, name)
select id, name from added union all select id, name from outlast.job_name where name = any($1::text[])
"""


async def name_ids(db: Database, names: Iterable[str]) -> dict[str, int]:
    """Give the ids of all `names`, new ones included; commits new ones at once, apart from the caller's work."""
    wanted = set(names)
    while missing := sorted(wanted - db.name_ids.keys()):
        # A name added by somebody else in the same instant is in neither half; the next round reads it.
        async with db.raw() as conn:
            rows = await conn.fetch(db.in_schema(_NAME_IDS), missing)
        db.name_ids.update((row["name"], row["id"]) for row in rows)
    return {name: db.name_ids[name] for name in wanted}
