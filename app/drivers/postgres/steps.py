"""`record_step`: steps of many callers in one statement, each fenced by its whole token and its worker's lease.

The claims are locked for key share, in the order of their ids: whoever takes one over waits for the step's commit, or
the step finds it gone. A step is recorded once; what is there already stays. Sent by `step_lane`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from ...domain.errors import RequestInvalid
from ...domain.job import ClaimToken
from ...domain.step import MAIN_BRANCH, NewStep, StepKind
from .database import Database
from .resolve import KIND_CODES


class Recording(NamedTuple):
    """A step and the claim it is recorded under."""

    token: ClaimToken
    step: NewStep


# Texts of many in one: no printable name holds this, and no JSON.
_BETWEEN = "\x1f"
_MICROSECOND = timedelta(microseconds=1)

# Every part of the token is compared within its own step's place, as everywhere. Of one worker's claims; kinds and
# branches are null as a whole where all are plain. The columns come as text: encoding arrays, element by element, cost
# more than all else of sending a batch, and the server reads its own notation faster than bodies can wait for it.
RECORD = f"""
with i as materialized (
  select * from unnest($1::text::uuid[], $2::text::bigint[], $3::text::int[], string_to_array($5::text, E'\\x1f'),
    $6::smallint[], $7::text[], $8::text::int[], string_to_array($9::text, E'\\x1f', ''), $10::text::bigint[])
    with ordinality i(job_id, seq, claim_no, name, kind, branch, number, value, lasted, ord)),
held as materialized (
  select r.job_id, r.seq, r.claim_no from outlast.running r
  where r.job_id = any($1::text::uuid[]) and r.worker = (
    select w.id from outlast.worker w
    where w.id = $4::int and w.lost_at is null and w.closed_at is null and w.lease_until > outlast.clock())
  order by r.job_id for key share),
mine as materialized (
  select i.*, h.claim_no as held_as from i left join held h
    on h.job_id = i.job_id and h.seq = i.seq and h.claim_no = i.claim_no),
stp as (
  insert into outlast.step(run_id, name, kind, branch, number, value, claim_no, code_version, started_at)
  select e.run_id, m.name, coalesce(m.kind, {KIND_CODES[StepKind.RUN]}), coalesce(m.branch, '{MAIN_BRANCH}'), m.number,
    m.value, m.claim_no, w.code_version, outlast.clock() - m.lasted * interval '1 microsecond'
  from mine m
  cross join lateral (
    select coalesce(j.run_id, j.id) as run_id from outlast.job j where j.id = m.job_id offset 0) e
  cross join (select w.code_version from outlast.worker w where w.id = $4::int) w
  where m.held_as is not null
  order by m.ord
  on conflict do nothing)
select held_as is not null as is_held from mine order by ord"""  # noqa: S608  constants of our own


async def record_steps(db: Database, steps: Sequence[Recording]) -> Sequence[bool]:
    """Record steps, one commit a worker, each answered by itself: False where the claim is gone. Repeating is safe."""
    first = steps[0].token.worker_id
    if all(token.worker_id == first for token, _ in steps):
        return await _of_one_worker(db, steps)
    answers: dict[int, bool] = {}
    for worker in {token.worker_id: None for token, _ in steps}:
        its = [index for index, (token, _) in enumerate(steps) if token.worker_id == worker]
        answers.update(zip(its, await _of_one_worker(db, [steps[index] for index in its]), strict=True))
    return [answers[index] for index in range(len(steps))]


async def _of_one_worker(db: Database, steps: Sequence[Recording]) -> Sequence[bool]:
    rows = await db.run(lambda conn: conn.fetch(db.in_schema(RECORD), *columns_of(steps)))
    return [row["is_held"] for row in rows]


def columns_of(steps: Sequence[Recording]) -> list[Any]:
    """Give the binds of `RECORD` for steps of one worker's claims."""
    ids, numbers, workers, fences = zip(*(token for token, _ in steps), strict=True)
    names, kinds, places, values, lasted = zip(*(step for _, step in steps), strict=True)
    branches, places_in = zip(*places, strict=True)
    return [
        _array(ids),
        _array(fences),
        _array(numbers),
        workers[0],
        _texts(names),
        None if kinds.count(StepKind.RUN) == len(kinds) else [KIND_CODES[kind] for kind in kinds],
        None if branches.count(MAIN_BRANCH) == len(branches) else list(branches),
        _array(places_in),
        _texts([value or "" for value in values]),  # no JSON is empty, so that this is no value
        _array([each // _MICROSECOND for each in lasted]),
    ]


def _array(values: Sequence[object]) -> str:
    """Write numbers or ids as the server writes an array of them."""
    return f"{{{','.join(map(str, values))}}}"


def _texts(values: Sequence[str]) -> str:
    """Write texts as one that the server takes apart again.

    Raises:
        RequestInvalid: one of them holds what stands between them.
    """
    joined = _BETWEEN.join(values)
    if joined.count(_BETWEEN) != len(values) - 1:
        raise RequestInvalid(
            "the name or value of a step holds a raw control character",
            fix="send JSON, which escapes them, under a printable name",
        )
    return joined
