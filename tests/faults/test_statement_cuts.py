"""Every statement of every operation is cut at every boundary, and the operation's caller comes to the right end.

A cell is an operation, one of its statements, and how the connection ended around it. `tests/faults/cuts` says what the
operations are and what must hold after each cell. The counts are in the summary of the run, the cells with `-v`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from app.control import moving
from app.domain.outcome import KIND_OF
from app.drivers.api_keys import KeyStore
from app.drivers.bulk import BulkStore
from app.drivers.fleet import FleetStore
from app.drivers.moving import MoveStore
from app.drivers.outbox import OutboxStore
from app.drivers.postgres import heartbeat
from app.drivers.protocol import HeartbeatStore, JobDriver
from app.drivers.schedules import ScheduleStore
from app.drivers.webhooks import WebhookStore
from app.outbox import passes
from tests.conformance.runs import new_event
from tests.faults.cuts import (
    actions,
    bulk,
    ends,
    enqueue,
    fair,
    heart,
    keys,
    limits,
    moves,
    outbox,
    purges,
    queues,
    repairs,
    requests,
    runs,
    schedules,
    settle,
    upkeep,
    waits,
    webhooks,
    worker,
)
from tests.faults.cuts.bench import Bench, bench_on
from tests.faults.cuts.cell import Cell, Operation, play, statements_of
from tests.faults.cuts.table import agree, commits, counts, lines
from tests.support.blade import Cut

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

_GROUPS: dict[str, Sequence[type[Operation]]] = {
    "enqueue": enqueue.OPERATIONS,
    "caller": outbox.STAGING,
    "relay": outbox.SHARED,
    "relay apart": outbox.APART,
    "worker": (*worker.OPERATIONS, *heart.OPERATIONS),
    "settle": settle.OPERATIONS,
    "records": runs.RECORDS,
    "suspensions": runs.SUSPENSIONS,
    "ends of runs": ends.ENDS,
    "wakes": waits.WAKES,
    "repairs": repairs.REPAIRS,
    "upkeep": upkeep.OPERATIONS,
    "purges": purges.PURGES,
    "slots": limits.SLOTS,
    "numbers of limits": limits.NUMBERS,
    "schedules": schedules.OPERATIONS,
    "queues": queues.OPERATIONS,
    "fair queues": fair.OPERATIONS,
    "actions": actions.OPERATIONS,
    "bulk": bulk.OPERATIONS,
    "keys": keys.OPERATIONS,
    "requests": requests.OPERATIONS,
    "webhooks": webhooks.OPERATIONS,
    "moves": moves.OPERATIONS,
}
# So many cells at least, so that none is lost in silence.
_CELLS = {
    "enqueue": 104,
    "caller": 32,
    "relay": 64,
    "relay apart": 160,
    "worker": 88,
    "settle": 56,
    "records": 32,
    "suspensions": 180,
    "ends of runs": 128,
    "wakes": 100,
    "repairs": 100,
    "upkeep": 60,
    "purges": 72,
    "slots": 124,
    "numbers of limits": 184,
    "schedules": 100,
    "queues": 60,
    "fair queues": 40,
    "actions": 260,
    "bulk": 300,
    "keys": 50,
    "requests": 56,
    "webhooks": 100,
    "moves": 100,
}
_MODULES = (
    *(actions, bulk, ends, enqueue, fair, heart, limits, keys, moves, outbox, purges, queues),
    *(repairs, requests, runs, schedules, settle, upkeep, waits, webhooks, worker),
)
# Nothing is stored by these; `stage_now` sends what `stage` does.
_READS = {
    *(
        "attempts",
        "audit",
        "close",
        "count",
        "count_jobs",
        "count_over",
        "count_table",
        "database_time",
        "dead_letters",
    ),
    *(
        "describe",
        "drains",
        "due",
        "ended_sessions",
        "events",
        "find",
        "finished_among",
        "forwarded",
        "flow",
        "flow_kinds",
        "heard",
        "history",
        "identity",
        "left",
        "list_by_time",
        "on_the_way",
    ),
    *("items", "job_types", "key", "keys", "known", "limits_of", "list", "listen", "now", "open"),
    *("open_heartbeat", "operations", "ping"),
    *(
        "count_waiting",
        "queue_facts",
        "queues",
        "run",
        "schedules",
        "situation",
        "slots",
        "stage_now",
        "standings",
        "stats",
    ),
    *("stored_limits", "until_finished", "view", "vitals", "workers"),
    *("deliveries", "delivery", "webhook", "webhooks"),
}
_CLEAN = tuple(cut for cut in Cut if cut is not Cut.SILENT)
_PATIENCE = timedelta(seconds=1.5)  # of a statement whose reply never comes; its client waits a second longer
_BENCHES = 8

Record = Callable[[str, object], None]


@pytest.mark.parametrize("group", _GROUPS)
async def test_a_cut_at_any_statement_loses_doubles_and_strands_nothing(
    make_database: Callable[..., str], folder: Path, record_property: Record, group: str
) -> None:
    cells: list[Cell] = []
    async with bench_on(make_database, folder) as bench:
        for kind in _GROUPS[group]:
            statements = await statements_of(bench, kind)
            own = [await _played(bench, kind, at, cut, statements) for at in range(len(statements)) for cut in _CLEAN]
            agree(own)
            cells += own
    _tell(record_property, group, cells)
    assert len(cells) >= _CELLS[group], f"{len(cells)} cells of {_CELLS[group]}"


@pytest.mark.long
async def test_replies_that_are_lost_without_a_word_end_at_the_time_limit(
    make_database: Callable[..., str], folder: Path, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An asymmetric partition: requests arrive, replies do not, and nobody closes the connection.

    Each statement that changes something by itself, and each COMMIT. The waits are side by side.
    """
    monkeypatch.setattr(heartbeat, "COMMAND_TIMEOUT", _PATIENCE)
    cells: list[Cell] = []
    todo = iter([kind for kinds in _GROUPS.values() for kind in kinds])

    async def work_through(number: int) -> None:
        async with bench_on(make_database, folder / str(number), patience=_PATIENCE) as bench:
            for kind in todo:
                statements = await statements_of(bench, kind)
                cells.extend([await _played(bench, kind, at, Cut.SILENT, statements) for at in commits(statements)])

    async with asyncio.TaskGroup() as group:
        for number in range(_BENCHES):
            group.create_task(work_through(number))
    _tell(record_property, "silence", sorted(cells, key=lambda cell: (cell.operation, cell.at)))
    assert len(cells) >= 120
    assert sum(cell.stored for cell in cells) >= 110


def test_every_verb_that_writes_is_cut() -> None:
    verbs = {
        name
        for protocol in (
            JobDriver,
            FleetStore,
            HeartbeatStore,
            OutboxStore,
            ScheduleStore,
            BulkStore,
            KeyStore,
            WebhookStore,
            MoveStore,
        )
        for name, found in inspect.getmembers(protocol, inspect.isfunction)
        if not name.startswith("_")
    }
    sources = "".join(inspect.getsource(module) for module in (*_MODULES, moving, passes))
    assert {verb for verb in verbs - _READS if f".{verb}(" not in sources} == set()
    assert verbs >= _READS


def test_every_outcome_is_settled_and_cut() -> None:
    sources = inspect.getsource(settle) + inspect.getsource(runs)
    assert [outcome.__name__ for outcome in KIND_OF if f"{outcome.__name__}(" not in sources] == []


async def test_a_cell_whose_cut_is_never_made_fails(make_database: Callable[..., str], folder: Path) -> None:
    async with bench_on(make_database, folder) as bench:
        statements = await statements_of(bench, enqueue.Enqueue)
        with pytest.raises(AssertionError, match="not the statement to be cut"):
            await play(bench, enqueue.Enqueue, 1, Cut.UNSENT, [*statements, "select 1"])


class _NewId(enqueue.Enqueue):
    """Its caller mints another id when it does not know."""

    async def again(self) -> Any:
        self.job = self.new()
        return await self.call()


class _NoLook(outbox.Stage):
    """Its caller runs its transaction again without looking whether it happened."""

    async def again(self) -> Any:
        self.sale, self.jobs = self.new().id, [self.new()]
        await self.call()


class _NoReconcile(worker.Claim):
    """Its worker claims again and forgets what may have come."""

    async def again(self) -> Any:
        return await self.call()


class _Twice(settle.SettleRetried):
    """Its worker settles what it is given as if nothing had been stored."""

    async def again(self) -> Any:
        await self.fetch("update outlast.waiting set due_at = outlast.clock()")
        await self.straight.promote()
        (self.job,) = await self.claimed(await self.registered())
        return await self.call()


class _NoHistory(runs.StepTransaction):
    """Its next attempt does not read what is recorded."""

    async def again(self) -> Any:
        self.sale = self.new().id
        await self.call()


class _SaidTwice(runs.Note):
    """Its worker says again what it does not know to be kept."""

    async def again(self) -> Any:
        return await self.call()


class _NewEvent(waits.Emit):
    """Its caller mints another id when it does not know."""

    async def again(self) -> Any:
        self.event = new_event()
        return await self.call()


@pytest.mark.parametrize("kind", [_NewId, _NoLook, _NoReconcile, _Twice, _NoHistory, _SaidTwice, _NewEvent])
async def test_a_careless_caller_is_noticed(
    make_database: Callable[..., str], folder: Path, kind: type[Operation]
) -> None:
    async with bench_on(make_database, folder) as bench:
        statements = await statements_of(bench, kind)
        with pytest.raises(AssertionError):
            await play(bench, kind, len(statements) - 1, Cut.UNANSWERED, statements)


async def _played(bench: Bench, kind: type[Operation], at: int, cut: Cut, statements: Sequence[str]) -> Cell:
    try:
        return await play(bench, kind, at, cut, statements)
    except BaseException as error:
        error.add_note(f"cell: {kind.name}, statement {at + 1} of {len(statements)}, {cut}")
        error.add_note(statements[at])
        raise


def _tell(record: Record, group: str, cells: Sequence[Cell]) -> None:
    record("cuts", {"counts": counts(group, cells), "cells": list(lines(cells))})
