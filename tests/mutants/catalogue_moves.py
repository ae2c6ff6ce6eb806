"""What is changed on purpose in the statements that move jobs to another database."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Target

_DRIVER = "app/drivers/postgres/"
_TESTS = ("tests/postgres/test_moves.py", "tests/postgres/test_moves_callbacks.py")

MOVES = (
    Target(
        _DRIVER + "moves_out.py",
        _TESTS,
        (
            Mutant("take: one queue", "($2::text is null or t.queue = $2)", "($2::text is null or true)"),
            Mutant("take: what went back", "t.seq <= $7::bigint", "$7::bigint is not null"),
            Mutant("take: what went back and was lined up", "t.seq <= $5::bigint", "$5::bigint is not null"),
            Mutant("take: what waits here", "x.job_id = t.job_id limit 1) then '{Stays.WAITS}'", "false) then 'waits'"),
            Mutant("take: what is called", "x.child_id = t.job_id limit 1) then '{Stays.CALLED}'", "false) then 'x'"),
            Mutant("take: what carries a delivery", "where n.name = {_CARRIER}", "where n.name = 'x'"),
            Mutant("take: another tenant's webhook", "and w.tenant = e.tenant", ""),
            Mutant("left: what is too old", "taken_at < outlast.clock() - $3::interval", "$3::interval is null"),
        ),
    ),
    Target(
        _DRIVER + "moves_in.py",
        _TESTS,
        (
            Mutant(
                "keys: of another job",
                "where l.job_id = excluded.job_id or (l.ended and l.expires_at <= outlast.clock())",
                "where true",
            ),
            Mutant("callbacks: whose webhook is here", "coalesce(d.callback, d.doc", "coalesce(null, d.doc"),
            Mutant("events: numbers of another store", "-abs(x.event_seq)", "x.event_seq"),
            Mutant("order: as they came", "where due_at is null order by ord)", "where due_at is null order by -ord)"),
        ),
    ),
)
