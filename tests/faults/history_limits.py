"""What the second history tells of limits: who held which slot when, and what number was in force then.

A number is in force from the commit that wrote it. Whether that was before a slot was decided about is read off what
transactions saw, not off their clocks. The rules are those of `checkers_limits`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from app.domain.job import LimitKey
from app.domain.limit import RATE, limit_hash
from tests.faults.checkers_limits import RatedStart, Slot, never_over_held, never_too_fast
from tests.faults.written import Asked, Write

# The mark in the rank of a limited job's tokens.
_LIMITED = 32

_RULES = """
insert into outlast.test_audit(place, op, row) select 'limit_rule', 'INSERT', to_jsonb(r) from outlast.limit_rule r"""
_KEYS = 'select hash, name, "limit", key from outlast.limit_key'
_RATED = """
select j.id, n.name, j.limit_keys[array_position(j.limit_names, 'rate')] as key
from outlast.job j join outlast.job_name n on n.id = j.name_id where 'rate' = any(j.limit_names)"""
_SECONDS = (
    'select "limit", name, extract(epoch from per)::float8 as seconds from outlast.limit_rule where per is not null'
)


class Key(NamedTuple):
    """A key of a limit of a job type."""

    name: str
    limit: str
    key: str


@dataclass(slots=True)
class _Number:
    """A number in force, or none, from the commit of `txid` on; that was seen by `seen_by` at the latest."""

    txid: int
    n: int | None
    seen_by: float = float("inf")


async def note_rules(database: Asked) -> None:
    """Begin the history of numbers with those there are."""
    await database.fetch(_RULES)


async def check_limits(database: Asked, history: Sequence[Write]) -> tuple[int, int]:
    """Hold slots and starts to their limits; gives the most that held a key, and that began within a rate's time."""
    if not any(write.place == "slot" or _is_limited_start(write) for write in history):
        return 0, 0
    numbers = _numbers(history)
    keys = {row["hash"]: Key(row["name"], row["limit"], row["key"]) for row in await database.fetch(_KEYS)}
    rated = {
        str(row["id"]): Key(row["name"], RATE, row["key"])
        for row in await database.fetch(_RATED)
        if row["key"] is not None
    }
    seconds = {row["name"]: row["seconds"] for row in await database.fetch(_SECONDS)}
    for hash_, key in keys.items():
        assert limit_hash(key.name, LimitKey(key.limit, key.key)) == hash_, f"{key} is kept under another's hash"
    return never_over_held(_slots(history, keys, numbers)), never_too_fast(_starts(history, rated, seconds, numbers))


def _slots(
    history: Iterable[Write], keys: dict[UUID, Key], numbers: dict[tuple[str, str], list[_Number]]
) -> Iterator[Slot]:
    for write in (write for write in history if write.place == "slot"):
        assert write.op != "UPDATE", f"a slot was rewritten: {write}"
        key = keys[UUID(write.row["hash"])]
        claim = f"{write.row['job_id']} claim {write.row['claim_no']} of worker {write.row['worker']}"
        may = _in_force(numbers[key.name, key.limit], write)
        yield Slot(key=key, claim=claim, is_taken=write.op == "INSERT", may=may)


def _starts(
    history: Iterable[Write],
    rated: dict[str, Key],
    seconds: dict[str, float],
    numbers: dict[tuple[str, str], list[_Number]],
) -> Iterator[RatedStart]:
    for write in filter(_is_limited_start, history):
        key = rated.get(write.row["job_id"])
        if key is None:
            continue
        known = numbers[key.name, RATE]
        may = _in_force(known, write)
        n = max((number for number in may if number is not None), default=None)
        if n is not None and None not in may:
            which = sum(_is_visible(number.txid, write.seen) for number in known)
            yield RatedStart(key=key, rule=which, n=n, seconds=seconds[key.name], began=write.began, at=write.at)


def _is_limited_start(write: Write) -> bool:
    return write.place == "running" and write.op == "INSERT" and write.row["rank"] >= _LIMITED


def _numbers(history: Sequence[Write]) -> dict[tuple[str, str], list[_Number]]:
    """Give the numbers of each limit in the order of their commits, which is that of their writes."""
    numbers: defaultdict[tuple[str, str], list[_Number]] = defaultdict(list)
    for write in (write for write in history if write.place == "limit_rule"):
        row = write.row
        is_off = write.op == "DELETE" or row["declared"] is None
        n = None if is_off else row["override"] or row["declared"]
        numbers[row["name"], row["limit"]].append(_Number(write.txid, n))
    every = [number for each in numbers.values() for number in each]
    for write in history:
        for number in every:
            if write.at < number.seen_by and write.txid != number.txid and _is_visible(number.txid, write.seen):
                number.seen_by = write.at
    return numbers


def _in_force(numbers: Sequence[_Number], write: Write) -> list[int | None]:
    """Give the numbers that were in force at some time between the beginning of a write's transaction and the write."""
    last = sum(_is_visible(number.txid, write.seen) for number in numbers)
    first = sum(number.seen_by <= write.began for number in numbers[:last])
    return [number.n for number in numbers[max(first - 1, 0) : last]] + ([None] if first == 0 else [])


def _is_visible(txid: int, seen: str) -> bool:
    """Say whether a transaction had committed by a snapshot, as `xmin:xmax:running,…`."""
    low, high, running = seen.split(":")
    return txid < int(low) or (txid < int(high) and str(txid) not in running.split(","))
