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

_OF_TURNS = (
    "tests/conformance/test_fair_queues.py",
    "tests/postgres/test_races_fair.py",
    "tests/postgres/test_fair_turns.py",
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
            Mutant(
                "admit: counts under the lock",
                "null, {PLACES}, null\nfrom",
                "null, 9, null\nfrom",
            ),
            Mutant("admit: paused since", "({PAUSED} or (q.concurrency", "((q.concurrency"),
            Mutant("admit: limited since", "q.concurrency is not null and q.name <> all", "false and q.name <> all"),
            Mutant(
                "admit: passes over a cancel",
                "any($2::uuid[]) for update skip locked)",
                "any($2::uuid[]) for update)",
            ),
            Mutant("admit: keeps what it decides about", "any($2::uuid[]) for update skip locked)", "any($2::uuid[]))"),
            Mutant("admit: no more in hands than there is room for", "  limit $4::int)\nselect", "  )\nselect"),
            Mutant("admit: all of a decision or none", "len(taken) < len(decision.admitted)", "len(taken) < 0"),
            Mutant(
                "new keys: not those that are there",
                "where (select true from outlast.limit_key k where k.hash = u.hash limit 1) is not true\n",
            ),
        ),
    ),
    Target(
        _DRIVER + "gate_free.py",
        (*_OF_TURNS, "tests/conformance/test_limits_queues.py"),
        (
            Mutant("take: passes over what is in hands", "for update skip locked) x", "for update) x"),
            Mutant("take: keeps what it takes", "for update skip locked) x", ") x"),
            Mutant("take: no more than there is room for", "limit $3::int)", "limit $3::int + 1)"),
            Mutant("take: lease", " and {MAY_CLAIM.strip()}"),
            Mutant("take: paused since", "({PAUSED} or q.concurrency", "(q.concurrency"),
            Mutant("take: limited since", " or q.concurrency is not null"),
            Mutant("take: says that others have some", "len(rows) < min(room, len(found))", "False"),
            Mutant(
                "take: in the order of the look",
                "for one in found if one.job_id in rows]",
                "for one in found[::-1] if one.job_id in rows]",
            ),
            Mutant("given: an attempt begins", "(g.attempt + 1)::smallint as attempt", "g.attempt"),
            Mutant("given: a claim is counted", "g.claim_no + 1 as claim_no", "g.claim_no"),
            Mutant("given: the rank without its mark", "(t.rank & 31)::smallint", "t.rank"),
        ),
    ),
    Target(
        _DRIVER + "gate_look.py",
        (*_TESTS, "tests/conformance/test_fair_queues.py", "tests/postgres/test_fair_turns.py"),
        (
            Mutant("look: lease", "where s.room > 0 and {MAY_CLAIM.strip()}", "where s.room > 0 and $1 is not null"),
            Mutant("look: paused queues", " and l.is_paused is not true"),
            Mutant("look: full queues", " and (l.places > 0) is not false"),
            Mutant("look: parked ones of open keys", "where k.open_at <= outlast.clock()", "where false"),
            Mutant("look: in order", "order by c.rank, c.seq limit", "order by c.seq limit"),
            Mutant("look: every tenant", "g.tenant > t.tenant order", "g.tenant > t.tenant and false order"),
            Mutant("look: tenants parked at a key", "g.tenant > '' order", "false order"),
            Mutant("look: a share of the heads by weight", "ceil($5::int * coalesce(f.weight,", "ceil(1 * coalesce(1,"),
            Mutant("look: from where the queue is", "greatest(f.finish, v.started, 0)", "greatest(f.finish, 0)"),
            Mutant("look: from where the tenant is", "greatest(f.finish, v.started, 0)", "greatest(v.started, 0)"),
            Mutant("look: goes on behind the last", "where t.n = {MOST_TENANTS} and", "where false and"),
        ),
    ),
    Target(
        _DRIVER + "turns.py",
        _OF_TURNS,
        (
            Mutant("turns: by weight", "excluded.starts::float8 / {_WEIGHT},", "excluded.starts::float8,"),
            Mutant(
                "turns: never back",
                "greatest(f.finish, excluded.finish - excluded.starts)",
                "excluded.finish - excluded.starts",
            ),
            Mutant("turns: from the queue's time", "greatest(f.finish, excluded.finish - excluded.starts)", "f.finish"),
            Mutant("turns: when the last began", "{_BEGINS} + (excluded.starts - 1)", "{_BEGINS} + (excluded.starts)"),
            Mutant("line up: fair queues alone", "where q.fair),", "where q.name is not null),"),
            Mutant(
                "line up: what is in hands",
                "for update skip locked) x\n  limit $1::int),\nd as",
                "for update) x\n  limit $1::int),\nd as",
            ),
            Mutant("line up: keeps the order", "d.rank | {LIMITED}, d.seq,", "d.rank | {LIMITED}, -d.seq,"),
            Mutant("line up: stays in the gate", "d.rank | {LIMITED}", "d.rank"),
            Mutant("line up: by tenant", "coalesce(j.tenant, '')\n", "''\n"),
            Mutant("forget: not a weight", "f.weight is null and f.used_at", "f.used_at"),
            Mutant("forget: not what is in use", " and f.used_at < outlast.clock() - interval '1 day'"),
            Mutant(
                "weights: taken away again",
                "set weight = excluded.weight",
                "set weight = coalesce(excluded.weight, f.weight)",
            ),
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
            Mutant("declare: opens what is parked", "set open_at = outlast.clock()", "set open_at = open_at"),
            Mutant("declare: sees who was parked", "await conn.fetch(db.in_schema(LOCK_KEYS), few)", "few = list(few)"),
            Mutant("declare: whoever is parked still", "g.parked > p.hash", "g.parked < p.hash"),
            Mutant("set: taken away again", "override = $3::int,", "override = coalesce($3::int, r.override),"),
        ),
    ),
    Target(
        _DRIVER + "limit_versions.py",
        ("tests/conformance/test_limits_versions.py", *_TESTS),
        (
            Mutant("declare: drops what is gone", "set declared = null", "set declared = declared"),
            Mutant("declare: keeps its place", "then v.number else excluded", "then excluded.number else excluded"),
            Mutant("declare: other limits are newest", "then v.number else excluded", "then v.number else v"),
            Mutant("choose: the newest", "order by v.name, v.number desc)", "order by v.name, v.number)"),
            Mutant("choose: of those that count", "and {_COUNTS} order by", "order by"),
            Mutant("counts: while it has workers", " or {_HAS_WORKERS})", ")"),
            Mutant(
                "counts: for a while after",
                "(coalesce(w.closed_at, w.lost_at) > outlast.clock() - {_KEPT}) is not false",
                "coalesce(w.closed_at, w.lost_at) is null",
            ),
        ),
    ),
)
