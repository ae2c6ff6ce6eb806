"""What holds for steps whatever is done to their run: recorded once, and not done again once they are recorded.

The rule is a pure function over what the store kept, what the audit saw of it, and the ledger that the bodies of steps
wrote themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from tests.faults.history import writes
from tests.support.ledger import Event
from tests.support.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A step as it was recorded: under a claim, at `at` or a little later for others to see."""

    run: str
    step: str
    claim_no: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """The work of a step that was done at `at`, by a body under a claim, in a process."""

    run: str
    step: str
    claim_no: int
    at: float
    pid: int


def step_once(recorded: Iterable[Recorded], worked: Iterable[Worked], *, frozen: Collection[int] = ()) -> None:
    """A step is recorded at most once, and its work is not done after that.

    Work of an earlier claim may be done again when its record never came. A process that was `frozen` may go on with
    work it had before it, under a claim that it has lost; nothing of that is stored.
    """
    records: dict[tuple[str, str], Recorded] = {}
    for one in recorded:
        assert (one.run, one.step) not in records, f"{one.run}: step {one.step!r} is recorded twice"
        records[one.run, one.step] = one
    times: dict[tuple[str, str, int], int] = defaultdict(int)
    for work in worked:
        about = f"{work.run}: step {work.step!r}, claim {work.claim_no}"
        times[work.run, work.step, work.claim_no] += 1
        assert times[work.run, work.step, work.claim_no] == 1, f"{about}: done twice in one attempt"
        record = records.get((work.run, work.step))
        if record is None:
            continue
        assert work.claim_no <= record.claim_no, f"{about}: done again, recorded under claim {record.claim_no}"
        is_late = work.at > record.at
        assert not is_late or work.pid in frozen, f"{about}: done {work.at - record.at:.3f} s after its record"


async def check_steps(store: Store, events: Iterable[Event], *, frozen: Collection[int] = ()) -> None:
    """Hold a quiet store and its ledger of effects to the rule; steps are never changed or taken back either."""
    seen = [write for write in await writes(store) if write.place == "step"]
    changed = [write for write in seen if write.op != "INSERT"]
    assert not changed, f"recorded steps were changed: {changed}"
    step_once([_recorded(write.row, write.at) for write in seen], map(_worked, _steps(events)), frozen=frozen)
    kept = await store.fetch("select run_id::text, name from outlast.step")
    assert {(row[0], row[1]) for row in kept} == {(write.row["run_id"], write.row["name"]) for write in seen}


def done_more_than_once(events: Iterable[Event]) -> int:
    """Count the work that was done again."""
    times: dict[tuple[object, object], int] = defaultdict(int)
    for event in _steps(events):
        times[event.job, event.detail["step"]] += 1
    return sum(count - 1 for count in times.values())


def _steps(events: Iterable[Event]) -> Iterable[Event]:
    return (event for event in events if event.op == "step")


def _recorded(row: dict[str, Any], at: float) -> Recorded:
    return Recorded(run=row["run_id"], step=row["name"], claim_no=row["claim_no"], at=at)


def _worked(event: Event) -> Worked:
    return Worked(
        run=str(event.job),
        step=event.detail["step"],
        claim_no=int(event.epoch or 0),
        at=event.wall,
        pid=event.pid,
    )
