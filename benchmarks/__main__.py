"""`python -m benchmarks`: every figure in one run on one server, medians with their spread, written to a page."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from . import drain, enqueue, fairness, flatness, idle, latency, limits, pages, relay, runs
from .bed import Bed, bed
from .page import Figure, write_page

PAGE = Path("docs/performance.md")
_Row = Callable[[Bed], Awaitable[list[Figure]]]


def _rate(name: str, goal: str, ours: float, raw: float | None) -> Figure:
    return Figure(name=name, unit="jobs/s", goal=goal, ours=ours, raw=raw)


async def _enqueue(bed: Bed) -> list[Figure]:
    few = await enqueue.one_by_one(bed, callers=16, jobs=15_000)
    many = await enqueue.one_by_one(bed, callers=64, jobs=30_000)
    bulk = await enqueue.bulk(bed, jobs=100_000)
    return [
        _rate("enqueue one by one, 16 callers", "≥ 20,000", *few),
        _rate("enqueue one by one, 64 callers", "≥ 40,000", *many),
        _rate("enqueue in bulk", "≥ 100,000", *bulk),
    ]


async def _drain(bed: Bed) -> list[Figure]:
    raw = await drain.by_statements(bed, jobs=100_000)
    one, wal = await drain.by_workers(bed, jobs=100_000, processes=1, concurrency=200)
    two, _ = await drain.by_workers(bed, jobs=100_000, processes=2, concurrency=200)
    return [
        _rate("drain, one worker process", "≥ 25,000", one, raw),
        _rate("drain, two worker processes", "≥ 35,000", two, raw),
        Figure(name="WAL of one run to done", unit="bytes", goal="≤ 620", ours=wal),
    ]


async def _latency(bed: Bed) -> list[Figure]:
    raw, idle = await latency.by_statements(bed, jobs=300), await latency.idle(bed, jobs=300)
    steady = await latency.steady(bed, rate=500, seconds=10)
    quiet = await latency.idle_statements(bed, seconds=10)
    return [
        Figure(name="pick-up, idle worker, p50", unit="ms", goal="≤ 1.5", ours=idle.p50 * 1e3, raw=raw.p50 * 1e3),
        Figure(name="pick-up, idle worker, p99", unit="ms", goal="≤ 4", ours=idle.p99 * 1e3, raw=raw.p99 * 1e3),
        Figure(name="pick-up at 500 jobs/s, p50", unit="ms", goal="≤ 1", ours=steady.p50 * 1e3),
        Figure(name="pick-up at 500 jobs/s, p99", unit="ms", goal="≤ 4", ours=steady.p99 * 1e3),
        Figure(name="CPU at 500 jobs/s, worker", unit="s/s", goal="", ours=steady.worker_cpu),
        Figure(name="CPU at 500 jobs/s, server", unit="s/s", goal="", ours=steady.server_cpu),
        Figure(name="statements of an idle worker", unit="1/s", goal="≤ 1", ours=quiet),
    ]


async def _flatness(bed: Bed) -> list[Figure]:
    first, last = await flatness.behind_a_pinned_snapshot(bed, jobs=200_000)
    empty, full = await flatness.beside_a_million(bed, jobs=200_000, rows=1_000_000, concurrency=200)
    enqueued, run = await flatness.wal_of(bed, jobs=2_000)
    padded = [sum(await flatness.wal_of(bed, jobs=1_000, padding=padding)) for padding in (1_000, 10_000)]
    return [
        Figure(name="WAL of an enqueue", unit="bytes", goal="≤ 480", ours=enqueued),
        Figure(name="WAL of a run to done, by statements", unit="bytes", goal="≤ 620", ours=run),
        Figure(name="WAL of both beyond a payload of 1 KB", unit="bytes", goal="", ours=padded[0] - 1_000),
        Figure(name="WAL of both beyond a payload of 10 KB", unit="bytes", goal="≤ 2,000", ours=padded[1] - 10_000),
        Figure(name="pinned snapshot, 200,000 jobs: last window / first", unit="", goal="≥ 0.9", ours=last / first),
        Figure(name="beside 10⁶ ready and 10⁶ done / empty", unit="", goal="≥ 0.9", ours=full / empty),
    ]


async def _relay(bed: Bed) -> list[Figure]:
    return [_rate("relay, one database, one relay", "≥ 10,000", *await relay.publish(bed, rows=30_000))]


async def _runs(bed: Bed) -> list[Figure]:
    raw = await runs.by_statements(bed, jobs=20_000)
    ours, wal = await runs.by_workers(bed, jobs=20_000, processes=1, concurrency=200)
    two, _ = await runs.by_workers(bed, jobs=20_000, processes=2, concurrency=200)
    suspended, woken = await runs.asleep_and_awake(bed, jobs=5_000, concurrency=200)
    return [
        _rate("five steps, one worker process", "≥ 50 % of bare", ours, raw),
        _rate("five steps, two worker processes", "", two, raw),
        Figure(name="WAL of a run of five steps", unit="bytes", goal="", ours=wal),
        _rate("suspend, one worker process", "", suspended, None),
        _rate("wake when due", "", woken, None),
    ]


async def _idle(bed: Bed) -> list[Figure]:
    alone, beside = await idle.alone_and_beside(bed, sleeping=100_000, seconds=60)
    return [
        _beside("statements of an idle worker", beside.statements, alone.statements),
        Figure(name="CPU of an idle worker", unit="ms/s", goal="", ours=alone.worker_cpu),
        Figure(name="CPU of an idle worker beside 100,000 sleepers", unit="ms/s", goal="", ours=beside.worker_cpu),
        _beside("CPU of an idle worker", beside.worker_cpu, alone.worker_cpu),
        Figure(name="CPU of the server for it", unit="ms/s", goal="", ours=alone.server_cpu),
        Figure(name="CPU of the server for it beside 100,000 sleepers", unit="ms/s", goal="", ours=beside.server_cpu),
    ]


def _beside(name: str, beside: float, alone: float) -> Figure:
    return Figure(name=f"{name} beside 100,000 sleepers / alone", unit="", goal="≤ 1.1", ours=beside / alone)


async def _limits(bed: Bed) -> list[Figure]:
    off, _ = await drain.by_workers(bed, jobs=50_000, processes=1, concurrency=200)
    wide, wal = await limits.by_workers(bed, jobs=20_000, kind="wide", keys=1, concurrency=200)
    rated, _ = await limits.by_workers(bed, jobs=20_000, kind="rated", keys=1, concurrency=200)
    keyed, _ = await limits.by_workers(bed, jobs=10_000, kind="one", keys=200, concurrency=200)
    narrow, _ = await limits.by_workers(bed, jobs=500, kind="one", keys=1, concurrency=200)
    return [
        _rate("drain of jobs without limits", "", off, None),
        _rate("drain, each under a limit of 1,000", "", wide, None),
        Figure(name="WAL of one run to done under a limit", unit="bytes", goal="", ours=wal),
        _rate("drain, each under a rate that is never reached", "", rated, None),
        _rate("drain, 200 keys of one each", "", keyed, None),
        _rate("drain, one key of one", "", narrow, None),
    ]


async def _fairness(bed: Bed) -> list[Figure]:
    alone = await fairness.waits(bed, backlog=0, seconds=20, is_fair=True)
    fair = await fairness.waits(bed, backlog=100_000, seconds=20, is_fair=True)
    off = await fairness.waits(bed, backlog=100_000, seconds=20, is_fair=False)
    beside = "beside 100,000 jobs of another"
    return [
        Figure(name="wait of a tenant alone, p95", unit="ms", goal="", ours=alone.p95 * 1e3),
        Figure(name=f"wait {beside}, fairness on, p95", unit="ms", goal="", ours=fair.p95 * 1e3),
        Figure(name=f"wait {beside}, fairness off, p95", unit="ms", goal="", ours=off.p95 * 1e3),
        Figure(name=f"wait {beside}, fairness on / alone", unit="", goal="≤ 3", ours=fair.p95 / alone.p95),
        _rate("jobs of the other meanwhile, fairness on", "", fair.busy_rate, None),
        _rate("jobs of the other meanwhile, fairness off", "", off.busy_rate, None),
    ]


async def _pages(bed: Bed) -> list[Figure]:
    times = await pages.beside_a_million(bed, jobs=1_000_000)
    dearest = max(times, key=lambda path: times[path][1])
    return [
        *(Figure(name=f"10⁶ jobs: {path}", unit="ms", goal="≤ 100", ours=ms) for path, (ms, _) in times.items()),
        Figure(name=f"10⁶ jobs: CPU of the dearest, {dearest}", unit="ms", goal="", ours=times[dearest][1]),
    ]


ROWS: dict[str, tuple[_Row, int]] = {
    "enqueue": (_enqueue, 3),
    "drain": (_drain, 3),
    "relay": (_relay, 3),
    "runs": (_runs, 3),
    "limits": (_limits, 3),
    "fairness": (_fairness, 1),
    "latency": (_latency, 1),
    "idle": (_idle, 1),
    "flatness": (_flatness, 1),
    "pages": (_pages, 1),
}


async def _measure(bed: Bed, chosen: list[str]) -> list[Figure]:
    """Run what was chosen in interleaved rounds; the first of each warms up where there are several."""
    seen: dict[str, list[Figure]] = {}
    for turn in range(max(ROWS[name][1] for name in chosen)):
        for name in chosen:
            measure, rounds = ROWS[name]
            if turn >= rounds:
                continue
            for figure in await measure(bed):
                seen.setdefault(figure.name, []).append(figure)
                sys.stderr.write(f"{figure.name}: {figure.ours:,.2f} {figure.unit}\n")
    return [_median(figures) for figures in seen.values()]


def _median(figures: list[Figure]) -> Figure:
    middle = sorted(figures, key=lambda figure: figure.ours)[len(figures) // 2]
    raws = [figure.raw for figure in figures if figure.raw is not None]
    return Figure(
        name=middle.name,
        unit=middle.unit,
        goal=middle.goal,
        ours=middle.ours,
        raw=statistics.median(raws) if raws else None,
        spread=(min(figure.ours for figure in figures), max(figure.ours for figure in figures)),
    )


def main() -> None:
    """Measure, print, and with `--write` put the figures on their page."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], help="which figures; all without a name")
    parser.add_argument("--pg", help="PostgreSQL major version; the bundled one without it")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE}")
    options = parser.parse_args()
    with bed(options.pg) as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        figures = runner.run(_measure(server, options.rows or list(ROWS)))
        page = write_page(figures, server.version)
    print(page)
    if options.write:
        PAGE.write_text(page)


if __name__ == "__main__":
    main()
