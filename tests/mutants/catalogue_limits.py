"""What is changed on purpose in the statements of limits; a part of `catalogue`."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Target

_DRIVER = "app/drivers/postgres/"
_TESTS = (
    "tests/postgres/test_races_limits.py",
    "tests/conformance/test_limits.py",
    "tests/conformance/test_limits_rates.py",
    "tests/conformance/test_limits_verbs.py",
    "tests/conformance/test_limits_queues.py",
    "tests/postgres/test_races_limits_queues.py",
    "tests/postgres/test_races_limits_looks.py",
    "tests/postgres/test_limits_keys.py",
)

LIMITS = (
    Target(
        _DRIVER + "gate.py",
        _TESTS,
        (
            Mutant("admit: a key is locked", "order by k.hash for update skip locked", "order by k.hash"),
            Mutant("admit: waits for no key", "order by k.hash for update skip locked", "order by k.hash for update"),
            Mutant("admit: what is held counts", "(select count(*) from outlast.slot s where s.hash = k.hash)", "0"),
            Mutant("admit: an operator's number", "coalesce(r.override, r.declared)", "r.declared"),
            Mutant("admit: what is declared no more", "case when r.declared is not null then", "case when true then"),
            Mutant("admit: lease", "where s.room > 0 and {MAY_CLAIM.strip()}", "where s.room > 0 and $1 is not null"),
            Mutant("admit: paused queues", " and l.is_paused is not true"),
            Mutant("admit: full queues", " and (l.places > 0) is not false"),
            Mutant(
                "admit: counts under the lock",
                "{PLACES} as places from outlast.queue q\nwhere",
                "9 as places from outlast.queue q\nwhere",
            ),
            Mutant("admit: paused since", "({PAUSED} or (q.concurrency", "((q.concurrency"),
            Mutant("admit: limited since", "q.concurrency is not null and q.name <> all", "false and q.name <> all"),
            Mutant("admit: parked ones of open keys", "where k.open_at <= outlast.clock()", "where false"),
            Mutant("admit: in order", "order by c.rank, c.seq limit", "order by c.seq limit"),
            Mutant(
                "admit: passes over a cancel",
                "any($2::uuid[]) for update skip locked)",
                "any($2::uuid[]) for update)",
            ),
            Mutant("admit: keeps what it decides about", "any($2::uuid[]) for update skip locked)", "any($2::uuid[]))"),
            Mutant("admit: all of a decision or none", "len(taken) < len(decision.admitted)", "len(taken) < 0"),
        ),
    ),
    Target(
        _DRIVER + "gate_decision.py",
        _TESTS,
        (
            Mutant(
                "admit: every key at once",
                "candidate.keys.keys() <= keys.keys()",
                "candidate.keys.keys() & keys.keys()",
            ),
            Mutant("admit: only what is there", "if not is_here:", "if not candidate:"),
            Mutant("admit: each lacks its own", "self.free > 0 if self.bucket is None", "True if self.bucket is None"),
        ),
    ),
    Target(
        _DRIVER + "slots.py",
        _TESTS,
        (
            Mutant("free: sequence", " and s.seq = t.seq"),
            Mutant("free: worker", " and s.worker = t.worker"),
            Mutant("free: the key first", 'order by k.hash for update"', 'order by k.hash"'),
            Mutant("free: opens the key", "set open_at = outlast.clock(), used_at", "set used_at"),
            Mutant("return: of the worker", "s.worker = $1 and not", "not"),
            Mutant("return: taken before", " and s.taken_at < $3", " and $3::timestamptz is not null"),
            Mutant(
                "forget: not while held",
                "(select true from outlast.slot s where s.hash = k.hash limit 1) is true",
                "false",
            ),
            Mutant(
                "forget: not while parked at",
                "or (select true from outlast.gate g where g.parked = k.hash limit 1) is true as",
                "as",
            ),
            Mutant("forget: not before it is full", "> outlast.clock(), false)", "> outlast.clock() and false, false)"),
            Mutant(
                "forget: what is in use counts as used",
                "(select hash from o where is_used)",
                "(select hash from o where false)",
            ),
        ),
    ),
    Target(
        _DRIVER + "limit_rules.py",
        _TESTS,
        (
            Mutant("declare: drops what is gone", "set declared = null", "set declared = declared"),
            Mutant("declare: opens what is parked", "set open_at = outlast.clock()", "set open_at = open_at"),
            Mutant("declare: sees who was parked", "await conn.fetch(db.in_schema(LOCK_KEYS), few)", "few = list(few)"),
            Mutant("declare: whoever is parked still", "g.parked > p.hash", "g.parked < p.hash"),
            Mutant("set: taken away again", "override = $3::int,", "override = coalesce($3::int, r.override),"),
        ),
    ),
)
