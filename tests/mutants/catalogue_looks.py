"""What is changed on purpose in what decides about a claim, in the low-water mark, and in what is said of them."""

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

LOW_WATER = Target(
    _DRIVER + "low_water.py",
    (
        *("tests/unit/test_low_water.py", "tests/unit/test_low_water_model.py"),
        "tests/postgres/test_low_water.py",
    ),
    (
        Mutant("everybody below has ended", " and horizon.xmin >= mark.since"),
        Mutant("nothing lower came", "low > mark.candidate and "),
        Mutant("claims begun before", "if life != self._life:", "if life < 0:"),
        Mutant("a new life", "        self._life += 1\n"),
        Mutant("new connection", "connection not in self._seen or "),
        Mutant("other job types", "names != self._names or "),
        Mutant("time", " or self.monotonic() >= self._forget_at"),
        Mutant("a look for the marks there were", "        if below.life != self._life:\n            return\n"),
        Mutant("counted from the look's begin", "self._wait_from(below.began)", "self._wait_from(self.monotonic())"),
        Mutant("one look at a time", " or self._is_looking"),
        Mutant("what was found is met", "        else:\n            self.forget()\n"),
    ),
)

LOW_LOOK = Target(
    _DRIVER + "low_look.py",
    ("tests/postgres/test_low_water.py",),
    (
        Mutant("its queue", "r.queue = m.queue and ", ""),
        Mutant("its rank", "r.rank = m.rank and ", ""),
        Mutant("up to the mark", "r.seq <= m.seq and ", ""),
        Mutant("job types", " and r.name_id = any($4::int[])", " and $4::int[] is not null"),
    ),
)

LOOKS = (LOW_WATER, LOW_LOOK, CLAIMABLE, EXPLAIN, VITALS)
