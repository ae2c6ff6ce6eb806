"""`python -m benchmarks.index_wal`: the bytes of WAL that an entry of each index costs, for the page of indexes.

A thousand rows as jobs have them are inserted into a copy of the table, without an index and with that one alone; the
difference is the entry's, its share of page splits included. No figure depends on the machine.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from docs.indexes import FIGURES, indexes

from .bed import bed, raw_on, wal_position

_ROWS = 1_000
_ID = "(lpad(to_hex(1700000000000 + i), 12, '0') || '7000' || '8' || substr(md5(i::text), 1, 15))::uuid"
_HASH = "md5(i::text)::uuid"
_VALUES = "'default', 11, 1, 0, 0, 0, 0"
_CARRIED = "queue, rank, name_id, attempt, claim_no, crashes, interrupts"
_CALLED = "'acme', 'order.approved', 'order:' || i"

# By table: the columns that its indexes read, and values of one row.
_SAMPLES = {
    "job": ("id, parent_id, key, tenant", f"{_ID}, {_ID}, 'order:' || i, 'acme'"),
    "tag": ("tag, job_id", f"'eu', {_ID}"),
    "ready": (f"job_id, seq, moved, {_CARRIED}", f"{_ID}, i, true, {_VALUES}"),
    "waiting": (f"job_id, due_at, {_CARRIED}", f"{_ID}, now() + i * interval '1 s', {_VALUES}"),
    "running": (f"job_id, seq, worker, {_CARRIED}", f"{_ID}, i, 1, {_VALUES}"),
    "suspended": (f"job_id, since, reason, {_CARRIED}", f"{_ID}, now(), 1, {_VALUES}"),
    "held": (f"job_id, reason, version, held_at, {_CARRIED}", f"{_ID}, 'step', '1.4.2', now(), {_VALUES}"),
    "gate": (
        f"job_id, seq, parked, {_CARRIED}",
        f"{_ID}, i, case when <parked> then md5((i % 10)::text)::uuid end, {_VALUES}",
    ),
    "finished": ("job_id, state, finished_at", f"{_ID}, 2, now() + i * interval '1 ms'"),
    "attempt": ("job_id, number, error_code", f"{_ID}, 1, 'MAILBOX'"),
    "live_key": ("hash, ended, expires_at", f"{_HASH}, true, now() + i * interval '1 s'"),
    "source": ("source_id, expires_at", f"{_ID}, now() + i * interval '1 ms'"),
    "expiry": ("job_id, kind, at", f"{_ID}, 1, now() + i * interval '1 ms'"),
    "outbox": (
        "id, staged_at, lease_until, refused_at, state",
        f"{_ID}, now() + i * interval '1 ms', now(), now() + i * interval '1 s', <state>",
    ),
    "slot": ("hash, job_id, seq", f"md5((i % 10)::text)::uuid, {_ID}, i"),
    "limit_key": ("hash, open_at, used_at", f"{_HASH}, now(), now() + i * interval '1 ms'"),
    "step": ("run_id, name", f"{_ID}, 'load'"),
    "wait": (
        "job_id, name, due_at, tenant, event, event_key, child_id",
        f"{_ID}, 'approval', now() + i * interval '1 s', {_CALLED}, {_ID}",
    ),
    "progress": ("job_id", _ID),
    "run_line": ("job_id, seq", f"{_ID}, i"),
    "handed": ("job_id", _ID),
    "event": ("seq, id, tenant, name, key, emitted_at", f"i, {_ID}, {_CALLED}, now() + i * interval '1 ms'"),
    "bulk_item": ("bulk_id, round, job_id, verdict", f"md5('')::uuid, 0, {_ID}, <verdict>"),
    "request": ("id, created_at", f"{_HASH}, now() + i * interval '1 ms'"),
}
# Where rows of one table are not in all of its indexes.
_VARIANTS = {
    "gate_parked": {"<parked>": "true"},
    "outbox_claimed": {"<state>": "1"},
    "outbox_quarantined": {"<state>": "2"},
    "bulk_item_undone": {"<verdict>": "1"},
}
_USUAL = {"<parked>": "false", "<state>": "0", "<verdict>": "null"}
_DEFINITION = "select pg_get_indexdef(to_regclass('outlast.' || quote_ident($1)))"


async def measure(url: str) -> dict[str, int]:
    """Give the bytes by index, of those that jobs write."""
    figures: dict[str, int] = {}
    async with raw_on(url) as connection:
        for name, (table, _) in sorted(indexes().items()):
            if table not in _SAMPLES:
                continue
            columns, row = _SAMPLES[table]
            for place, value in (_USUAL | _VARIANTS.get(name, {})).items():
                row = row.replace(place, value)
            definition = await connection.fetchval(_DEFINITION, name)
            bare = await _written(connection, table, columns, row, None)
            figures[name] = round((await _written(connection, table, columns, row, definition) - bare) / _ROWS)
    return figures


async def _written(connection: Any, table: str, columns: str, row: str, definition: str | None) -> int:
    await connection.execute(f"create table probe as select {columns} from outlast.{table} limit 0")
    if definition is not None:
        head, _, rest = definition.partition(" ON ")
        await connection.execute(f"{head.rpartition(' ')[0]} probe_index ON probe {rest.partition(' ')[2]}")
    before = await wal_position(connection)
    await connection.execute(f"insert into probe({columns}) select {row} from generate_series(1, {_ROWS}) i")
    written = await wal_position(connection) - before
    await connection.execute("drop table probe")
    return written


async def _main(url_of: Any) -> None:
    async with url_of.fresh("index_wal") as url:
        FIGURES.write_text(json.dumps(await measure(url), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    with bed(None) as server:
        asyncio.run(_main(server))
