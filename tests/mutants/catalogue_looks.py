"""What is changed on purpose in what decides about a claim, and in what is said of it to those who ask why."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Target

_DRIVER = "app/drivers/postgres/"

CLAIMABLE = Target(
    _DRIVER + "claimable.py",
    (
        *("tests/postgres/test_predicates.py", "tests/conformance/test_claim.py", "tests/conformance/test_explain.py"),
        *("tests/postgres/test_plans.py", "tests/postgres/test_races_claim.py", "tests/postgres/test_buffers.py"),
    ),
    (
        Mutant("a queue that is paused or full", "q.name = {queue} and ({PAUSED} or {PLACES} = 0)", "false"),
        Mutant("a queue that is full", "({PAUSED} or {PLACES} = 0)", "({PAUSED})"),
        Mutant("name is known", "r.name_id = any({names}) and (", "cardinality({names}) >= 0 and ("),
        Mutant("room for jobs that run alone", "r.crashes + 1 < coalesce(", "r.crashes < coalesce("),
    ),
)

EXPLAIN = Target(
    _DRIVER + "explain.py",
    ("tests/conformance/test_explain.py",),
    (
        Mutant("open queue", '{is_open("e.queue")} and '),
        Mutant("a token that is ready", '{fits("array[r.name_id]", "true")}', "true"),
        Mutant("ahead of it", "and (x.rank, x.seq) < (r.rank, r.seq) "),
        Mutant("in its own queue", "x.queue = r.queue and "),
        Mutant("counted to an end", " limit $2::int"),
        Mutant("kept for a version", "case when r.name_id <> e.name_id then p.name end", "p.name"),
        Mutant("its own hand-back", "h.job_id = e.id", "true"),
        Mutant("moved tokens", " and r.moved\n", " and not r.moved\n"),
    ),
)

VITALS = Target(
    _DRIVER + "vitals.py",
    ("tests/doctor/test_work.py", "tests/conformance/test_vitals.py"),
    (
        Mutant("not lost before", "w.lost_at is null and w.closed_at is null and w.lease_until <=", "w.lease_until <="),
        Mutant("lease passed", " and w.lease_until <= outlast.clock()"),
        Mutant("live holders", "w.id = r.worker and w.lost_at is null", "w.lost_at is null"),
    ),
)

LOOKS = (CLAIMABLE, EXPLAIN, VITALS)
