"""What is changed on purpose in the statements of purges."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Target

_DRIVER = "app/drivers/postgres/"
_TESTS = ("tests/conformance/test_purge.py", "tests/conformance/test_sweep.py", "tests/postgres/test_races_purge.py")
_CHILD = "\n        and not exists (select from outlast.finished p where p.job_id = w.job_id)"
_WAITED_FOR = "\n    and not exists (\n      select from outlast.wait w where w.child_id = s.job_id" + _CHILD + ")"

PURGES = (
    Target(
        _DRIVER + "purge.py",
        (*_TESTS, "tests/conformance/test_purge_workers.py", "tests/postgres/test_maintenance.py"),
        (
            Mutant("state", "where s.state = any($11::smallint[])\n", "where $11::smallint[] is not null\n"),
            Mutant("a job type's own retention", "coalesce(own.kept, case", "coalesce(case"),
            Mutant(
                "dead ones for longer",
                "case s.state when {DEAD} then $7::interval else $6::interval end",
                "case s.state when {DEAD} then $6::interval else least($6::interval, $7::interval) end",
            ),
            Mutant("job type", "($12::text is null or e.name = $12)", "($12::text is null or true)"),
            Mutant("tenant", "($13::text is null or e.tenant = $13)", "($13::text is null or true)"),
            Mutant("not what is waited for", _WAITED_FOR),
            Mutant("but by the living alone", _CHILD),
            Mutant("not the ids that cannot be old", "\n    and f.job_id < (select upto from cut)"),
            Mutant("passes over a retry", "order by f.job_id for update skip locked", "order by f.job_id for update"),
            Mutant(
                "the lowest worker that stays", "(select min(s.worker) from seen s", "(select max(s.worker) from seen s"
            ),
        ),
    ),
    Target(
        _DRIVER + "purge_mark.py",
        _TESTS,
        (
            Mutant("rests", " and ($2::boolean or p.rests_until <= outlast.clock())", " and $2::boolean is not null"),
            Mutant("passes over another's step", "for update skip locked)", "for update)"),
            Mutant("begins anew", "after = case when not o.is_over then o.last end", "after = o.last"),
            Mutant(
                "waits for nobody when it is made",
                "\nselect $1 where not exists (select from outlast.purge_mark where kind = $1) on",
                "\nselect $1 on",
            ),
        ),
    ),
    Target(
        _DRIVER + "purge_chores.py",
        (*_TESTS, "tests/conformance/test_purge_workers.py", "tests/postgres/test_predicates_beside.py"),
        (
            Mutant(
                "keys: window over", "t.ended and t.expires_at <= outlast.clock() - $5", "t.ended and $5 is not null"
            ),
            Mutant("sources: age", "t.expires_at < outlast.clock() - $5", "$5 is not null"),
            Mutant("events: age", "t.emitted_at < outlast.clock() - $5 and", "$5 is not null and"),
            Mutant("events: nobody may ask", " and t.emitted_at < $6", " and $6 is not null"),
            Mutant("events: done, not ended", "f.state is not distinct from {DONE}", "f.state is not null"),
            Mutant("reports: age", "t.ended_at < outlast.clock() - $5", "$5 is not null"),
            Mutant(
                "workers: named by what ended",
                "\n    and t.id < (select j.lowest from outlast.purge_mark j where j.kind = 'jobs')",
            ),
            Mutant("workers: named by a claim", "\n    and t.id <> all(array(select r.worker from outlast.running r))"),
            Mutant(
                "workers: named by a report",
                "\n    and not exists (select from outlast.drain d where d.worker = t.id)",
            ),
            Mutant("goes on at the last key", ">= (select coalesce(after", "> (select coalesce(after"),
            Mutant("passes over what is held", "and <over> for update skip locked", "and <over> for update"),
        ),
    ),
    Target(
        _DRIVER + "purge_tables.py",
        ("tests/postgres/test_purge_tables.py", "tests/postgres/test_races_purge.py"),
        (
            Mutant("not our own", ' or (row["nspname"] == db.schema and row["relname"] in _own_tables())'),
            Mutant("age", "and {time} < outlast.clock() - $1::interval\n", "and $1::interval is not null\n"),
            Mutant("passes over what is held", "\n  for update skip locked),\ngone", "\n  for update),\ngone"),
            Mutant("these pages", " and t.ctid < {high}::tid"),
        ),
    ),
)
