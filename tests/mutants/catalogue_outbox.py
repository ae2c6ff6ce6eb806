"""What is changed on purpose in the statements of the outbox."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Target

_DRIVER = "app/drivers/postgres/"

_TESTS = (
    "tests/conformance/test_outbox_claim.py",
    "tests/conformance/test_outbox_publish.py",
    "tests/postgres/test_races_outbox.py",
    "tests/postgres/test_outbox.py",
    "tests/postgres/test_outbox_cuts.py",
    "tests/conformance/test_outbox_full_queues.py",
)

OUTBOX = (
    Target(
        _DRIVER + "outbox_claim.py",
        _TESTS,
        (
            Mutant(
                "end: claimant", "state = 1 and claimed_by = $2", "state = 1 and claimed_by is not null or $2 is null"
            ),
            Mutant("release: claimant", "where state = 1 and claimed_by = $1", "where state = 1 or claimed_by = $1"),
            Mutant("recover: lease passed", " and lease_until <= outlast.clock()"),
            Mutant(
                "recover: passes over what is ended", "limit 10000 for update skip locked", "limit 10000 for update"
            ),
            Mutant("recover: of a relay", "filter (where claimed_by <> {RESTS}) "),
            Mutant("claim: counted", "claims = o.claims + 1", "claims = o.claims"),
            Mutant("looks after a release forget", "    if count:\n        looks.forget()\n"),
        ),
    ),
    Target(
        _DRIVER + "outbox_rows.py",
        _TESTS,
        (
            Mutant("look: state", "where state = 0 and staged_at >= $1", "where staged_at >= $1"),
            Mutant("look: since", "state = 0 and staged_at >= $1", "state = 0 and $1::timestamptz is not null"),
            Mutant("look: longest staged first", "order by staged_at limit $2", "order by staged_at desc limit $2"),
            Mutant("look: passes over others", "limit $2 for update skip locked", "limit $2 for update"),
            Mutant("look: locks", "limit $2 for update skip locked", "limit $2"),
            Mutant("look: bytes", " where before < {MAX_BYTES}"),
            Mutant("stale: claimed", "claims > 0 and staged_at <", "staged_at <"),
            Mutant("stale: age", "claims > 0 and staged_at < outlast.clock() - interval '90 days'", "claims > 0"),
            Mutant("rest: claimant", " and o.claimed_by is not distinct from $2", " and ($2::uuid is null or true)"),
            Mutant("rest: no claim", " - case when claimed_by is null then 0 else 1 end"),
            Mutant(
                "quarantine: claimant", " and o.claimed_by is not distinct from $4", " and ($4::uuid is null or true)"
            ),
        ),
    ),
    Target(
        _DRIVER + "outbox_publish.py",
        _TESTS,
        (
            Mutant(
                "followers: same payload",
                "answer is not None and fingerprint == row.job.fingerprint",
                "answer is not None",
            ),
            Mutant("followers: remembered", "            await self._remember(led)\n"),
            Mutant(
                "refused rows stay",
                "if isinstance(verdict, Enqueued):\n                    answers",
                "if True:\n                    answers",
            ),
            Mutant("careful after a bad value", "is_careful = True", "raise"),
        ),
    ),
)
