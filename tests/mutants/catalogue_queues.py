"""What is changed on purpose in the statements about queues that are held back."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Target

_DRIVER = "app/drivers/postgres/"
_LIMITS = ("tests/conformance/test_queue_limits.py", "tests/postgres/test_races_queues.py")
_DEPTH = (
    "tests/conformance/test_queue_depth.py",
    "tests/postgres/test_limits.py",
    "tests/postgres/test_races_queues.py",
)

QUEUES = (
    Target(
        _DRIVER + "queues.py",
        (
            *("tests/conformance/test_queue_pauses.py", "tests/conformance/test_stats.py", *_LIMITS),
            *("tests/postgres/test_predicates_beside.py", "tests/conformance/test_queue_depth.py"),
            "tests/conformance/test_fair_queues.py",
        ),
        (
            Mutant("pause: until", " and (q.paused_until is null or q.paused_until > outlast.clock())"),
            Mutant("pause: the longer stands", "q.paused_until < coalesce(excluded.paused_until, 'infinity')", "true"),
            Mutant("pause: one that is over", "where not ({PAUSED}) or q", "where q"),
            Mutant(
                "resume: its own queue",
                "where name = $1 and paused_at is not null returning",
                "where $1::text > '' and paused_at is not null returning",
            ),
            Mutant("resume: only what is paused", " and paused_at is not null returning", " returning"),
            Mutant("set: concurrency is kept", "case when $2 then excluded.concurrency else q.concurrency end", "$3"),
            Mutant("set: depth is kept", "case when $4 then excluded.max_depth else q.max_depth end", "$5"),
            Mutant("tidy: paused", " and paused_at is null and concurrency", " and concurrency"),
            Mutant("tidy: limited", " and concurrency is null and max_depth is null"),
            Mutant("tidy: fair", " and not fair"),
            Mutant(
                "set: fair is kept",
                "set fair = coalesce($6::boolean, q.fair)",
                "set fair = coalesce($6::boolean, false)",
            ),
        ),
    ),
    Target(
        _DRIVER + "limited.py",
        (*_LIMITS, "tests/conformance/test_settle_and_claim.py"),
        (
            Mutant("lock", "select pg_advisory_xact_lock(key) from (", "select key from ("),
            Mutant("locks of one queue", 'f"outlast {schema} {guarded} {queue}"', 'f"outlast {schema} {guarded}"'),
            Mutant("locks of claims alone", 'f"outlast {schema} {guarded} {queue}"', 'f"outlast {schema} {queue}"'),
        ),
    ),
    Target(
        _DRIVER + "enqueue_limited.py",
        _DEPTH,
        (
            Mutant(
                "delayed jobs count",
                "(select count(*) from (select from outlast.waiting w",
                "0 * (select count(*) from (select from outlast.waiting w",
            ),
            Mutant("of its own queue", "where r.queue = q.name limit", "limit"),
            Mutant(
                "kept for a time",
                "case when q.free_until > outlast.clock() and q.free is not null then",
                "case when q.free is not null then",
            ),
            Mutant(
                "what is there already",
                "        batch.found("
                "await self._conn.fetch(self._db.in_schema(FIND_KNOWN), *columns[:FIND_KNOWN_BINDS]))\n",
            ),
            Mutant("no more than fit", "indexes[room.free :]", "indexes"),
            Mutant("what it took", "                self._rooms[queue].free -= 1", "                pass"),
        ),
    ),
)
