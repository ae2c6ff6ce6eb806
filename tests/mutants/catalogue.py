"""What is changed on purpose: a predicate of a statement, or a rule of the low-water mark, one at a time.

A mutant is a name, a piece of text that stands once in its file, and what takes its place. Each file's mutants are
judged by the tests named with it, the likeliest to notice first.
"""

from __future__ import annotations

from typing import NamedTuple

_DRIVER = "app/drivers/postgres/"
_RACES = "tests/postgres/test_races_"


class Mutant(NamedTuple):
    """One change. `old` stands exactly once in the file."""

    name: str
    old: str
    new: str = ""


class Target(NamedTuple):
    """A file, what is changed in it, and who should notice."""

    path: str
    tests: tuple[str, ...]
    mutants: tuple[Mutant, ...]


SETTLE = Target(
    _DRIVER + "settle.py",
    (
        *("tests/postgres/test_settle_fence.py", "tests/postgres/test_settle_done.py"),
        *("tests/postgres/test_lost_worker.py", "tests/conformance/test_settle_fence.py"),
        *("tests/postgres/test_plans.py", "tests/conformance/test_settle.py", _RACES + "beside.py"),
    ),
    (
        Mutant("id is in the batch", "r.job_id = any($1::uuid[])\n    and ("),
        Mutant("fence: sequence", "    and ($2::bigint[])[width_bucket(r.seq, $2::bigint[])] = r.seq\n"),
        Mutant("fence: job id", "    and ($1::uuid[])[width_bucket(r.seq, $2::bigint[])] = r.job_id\n"),
        Mutant("fence: claim number", "    and ($3::int[])[width_bucket(r.seq, $2::bigint[])] = r.claim_no\n"),
        Mutant("fence: worker", "($4::int[])[width_bucket(r.seq, $2::bigint[])] = r.worker\n    and "),
        Mutant("fence: the one worker", "r.worker = (select w.id from", "0 < (select w.id from"),
        Mutant("worker not lost", "lost_at is null and w.closed_at", "closed_at"),
        Mutant("worker not closed", "w.closed_at is null and "),
        Mutant("lease not passed", " and w.lease_until > outlast.clock()"),
        Mutant("one statement for one worker", "workers.count(workers[0]) < len(workers)", "workers is None"),
        Mutant("a key is looked for", "settlement.is_keyed or "),
    ),
)

CLAIM = Target(
    _DRIVER + "claim.py",
    (
        *("tests/conformance/test_claim.py", "tests/postgres/test_lost_worker.py"),
        *("tests/postgres/test_low_water.py", "tests/postgres/test_plans.py"),
        *(_RACES + "claim.py", "tests/postgres/test_costs.py"),
    ),
    (
        Mutant("worker not lost", "select lost_at is null and closed_at is null", "select closed_at is null"),
        Mutant("worker not closed", "lost_at is null and closed_at is null", "lost_at is null"),
        Mutant("lease not passed", " and lease_until > outlast.clock()"),
        Mutant("queue not paused", "q.name = s.queue and q.paused_at is not null", "false"),
        Mutant("name is known", "r.name_id = any($4::int[]) and ", "cardinality($4::int[]) >= 0 and "),
        Mutant("room for jobs that run alone", "r.crashes + 1 < coalesce(", "r.crashes < coalesce("),
        Mutant("mark", "(r.rank, r.seq) > (g.rank, g.seq) and "),
        Mutant("end of a stretch", " and r.rank < g.ends"),
        Mutant("heads of the right queue", "where g.queue = s.queue limit", "limit"),
        Mutant("tokens of the right queue", "where g.queue = quota.queue limit", "limit"),
        Mutant("passes over what is locked", "limit quota.n for update skip locked", "limit quota.n for update"),
        Mutant("locks what it takes", "limit quota.n for update skip locked", "limit quota.n"),
        Mutant(
            "mark waits for the claim's own id",
            "(select pg_current_xact_id()::text::bigint from t limit 1) as timeout_ms",
            "pg_snapshot_xmax(pg_current_snapshot())::text::bigint as timeout_ms",
        ),
        Mutant("nothing learnt from what passes jobs over", "request.alone_ok and taken", "taken"),
        Mutant("marks forgotten after a failure", "        water.forget()\n"),
    ),
)

LOW_WATER = Target(
    _DRIVER + "low_water.py",
    ("tests/unit/test_low_water.py", "tests/postgres/test_low_water.py"),
    (
        Mutant("everybody below has ended", " and horizon.xmin >= mark.since"),
        Mutant("nothing lower came", "low > mark.candidate and "),
        Mutant("claims begun before", "if life != self._life:", "if life < 0:"),
        Mutant("a new life", "        self._life += 1\n"),
        Mutant("new connection", "connection not in self._seen or "),
        Mutant("other job types", "names != self._names or "),
        Mutant("time", " or self.monotonic() >= self._forget_at"),
    ),
)

RELEASE = Target(
    _DRIVER + "release.py",
    (
        *("tests/conformance/test_release.py", "tests/postgres/test_lost_worker.py", _RACES + "beside.py"),
        *("tests/postgres/test_plans.py", "tests/conformance/test_reap.py"),
    ),
    (
        Mutant("fence: job id", "t.job_id = r.job_id and "),
        Mutant("fence: sequence", "t.seq = r.seq and "),
        Mutant("fence: claim number", "t.claim_no = r.claim_no and "),
        Mutant("fence: worker", " and t.worker = r.worker"),
        Mutant("worker not lost", "w.lost_at is null and "),
        Mutant("worker not closed", "w.closed_at is null and "),
        Mutant("lease not passed", " and w.lease_until > outlast.clock()"),
        Mutant("lock order", " order by r.job_id for update", " for update"),
        Mutant("reconcile: own worker", "o.worker = $1 and "),
        Mutant("reconcile: not held", "not (o.seq = any($2::bigint[]))", "cardinality($2::bigint[]) >= 0"),
    ),
)

HEARTBEAT = Target(
    _DRIVER + "heartbeat.py",
    ("tests/conformance/test_heartbeat.py", _RACES + "reap.py", _RACES + "beside.py", "tests/postgres/test_plans.py"),
    (
        Mutant("revoked: other sequence", "is distinct from t.seq", "is null and t.seq > 0"),
        Mutant("revoked: other worker", " and (r.worker = $1) is true"),
        Mutant("abandon: sequence", "r.seq = t.seq and "),
        Mutant("abandon: claim number", "r.claim_no = t.claim_no and "),
        Mutant("abandon: worker", " and r.worker = me.id"),
        Mutant("abandon: lock order", "  order by r.job_id for update of r", "  for update of r"),
    ),
)

REAP = Target(
    _DRIVER + "reap.py",
    (
        *("tests/conformance/test_reap.py", "tests/postgres/test_lost_worker.py", _RACES + "reap.py"),
        *(_RACES + "beside.py", "tests/postgres/test_maintenance.py"),
    ),
    (
        Mutant("not judged twice", "lost_at is null and closed_at is null and lease_until <=", "lease_until <="),
        Mutant("lease passed", " and lease_until <= outlast.clock()"),
        Mutant(
            "not soon after a start",
            "\n  and pg_postmaster_start_time() + lease_ms * interval '1 ms' <= outlast.clock()",
        ),
        Mutant("passes over a renewal", "order by id for update skip locked", "order by id for update"),
        Mutant("passes over a settle", "limit $1 for update of r skip locked", "limit $1 for update of r"),
        Mutant("takes from the lost", "w.id = r.worker and w.lost_at is null and", "w.id = r.worker and"),
        Mutant("takes from the closed", "and w.lost_at is null and w.closed_at is null)", "and w.lost_at is null)"),
        Mutant("surrender: lock order", "  order by job_id for update),", "  for update),"),
    ),
)

BESIDE = (
    Target(
        _DRIVER + "promote.py",
        ("tests/conformance/test_sweep.py", _RACES + "cancel.py", _RACES + "beside.py"),
        (
            Mutant("due", "where due_at <= outlast.clock() "),
            Mutant("passes over a cancel", " for update skip locked", " for update"),
            Mutant("order of due times", " order by due_at, job_id"),
        ),
    ),
    Target(
        _DRIVER + "due.py",
        ("tests/conformance/test_due.py",),
        (
            Mutant("the next one due", " order by w.due_at limit 1", " order by w.due_at desc limit 1"),
            Mutant("passed limits", " x where {PASSED}", " x"),
            Mutant("lapsed workers", "outlast.worker where {LAPSED}", "outlast.worker where false"),
            Mutant("orphaned claims", " r where {ORPHANED}", " r where false"),
        ),
    ),
    Target(
        _DRIVER + "purge.py",
        (
            "tests/conformance/test_sweep.py",
            _RACES + "retry.py",
            _RACES + "beside.py",
            "tests/postgres/test_plans_beside.py",
        ),
        (
            Mutant("state", "f.state = $1 and ", "$1 >= 0 and "),
            Mutant("age", " and f.finished_at < (select at from cut)"),
            Mutant("passes over a retry", "limit $3 for update skip locked", "limit $3 for update"),
            Mutant("keys: window over", " and expires_at <= outlast.clock()"),
        ),
    ),
    Target(
        _DRIVER + "keys.py",
        ("tests/conformance/test_enqueue_keys.py", "tests/conformance/test_settle.py", _RACES + "settle.py"),
        (
            Mutant("own key", "\n    and k.job_id = any(array(select job_id from ended where key_hash is not null))"),
            Mutant("window over", " where not stays"),
            Mutant("window lasts", " where stays"),
        ),
    ),
    Target(
        _DRIVER + "enqueue_statements.py",
        (
            *("tests/postgres/test_enqueue_statements.py", "tests/postgres/test_low_water.py"),
            *("tests/conformance/test_enqueue_keys.py", "tests/postgres/test_enqueue_race.py"),
            "tests/conformance/test_enqueue.py",
        ),
        (
            Mutant("id before number", '"(select pg_current_xact_id()) is not null"', '"true"'),
            Mutant(
                "live key", "l.hash = n.hash and (not l.ended or l.expires_at > outlast.clock())", "l.hash = n.hash"
            ),
            Mutant("taken over only when over", "\n    where l.ended and l.expires_at <= outlast.clock()"),
            Mutant("key won", "(hash is null or id in (select job_id from k))", "true"),
            Mutant("source won", "\n    and (source_id is null or id in (select job_id from s))"),
        ),
    ),
    Target(
        _DRIVER + "enqueue_columns.py",
        (
            *("tests/postgres/test_enqueue_statements.py", "tests/conformance/test_enqueue_keys.py"),
            *("tests/conformance/test_enqueue.py", "tests/conformance/test_sweep.py"),
        ),
        (
            Mutant("short: key", "job.key is not None\n            or "),
            Mutant("short: source", "            or job.source_id is not None\n"),
            Mutant("short: delay", "            or job.delay is not None\n"),
            Mutant("short: time", "            or job.run_at is not None\n"),
            Mutant("short: deadline", "            or job.deadline is not None\n"),
            Mutant("short: time in the queue", "            or job.max_queue_time is not None\n"),
            Mutant("one value for all", "values.count(values[0]) == len(values)", "True"),
            Mutant("nothing for nulls", "values.count(None) == len(values)", "None in values"),
        ),
    ),
)

OUTBOX_TESTS = (
    "tests/conformance/test_outbox_claim.py",
    "tests/conformance/test_outbox_publish.py",
    _RACES + "outbox.py",
    "tests/postgres/test_outbox.py",
    "tests/postgres/test_outbox_cuts.py",
)

OUTBOX = (
    Target(
        _DRIVER + "outbox_claim.py",
        OUTBOX_TESTS,
        (
            Mutant(
                "end: claimant", "state = 1 and claimed_by = $2", "state = 1 and claimed_by is not null or $2 is null"
            ),
            Mutant("release: claimant", "where state = 1 and claimed_by = $1", "where state = 1 or claimed_by = $1"),
            Mutant("recover: lease passed", " and lease_until <= outlast.clock()"),
            Mutant(
                "recover: passes over what is ended", "limit 10000 for update skip locked", "limit 10000 for update"
            ),
            Mutant("claim: counted", "claims = o.claims + 1", "claims = o.claims"),
            Mutant("looks after a release forget", "    if count:\n        looks.forget()\n"),
        ),
    ),
    Target(
        _DRIVER + "outbox_rows.py",
        OUTBOX_TESTS,
        (
            Mutant("look: state", "where state = 0 and staged_at >= $1", "where staged_at >= $1"),
            Mutant("look: since", "state = 0 and staged_at >= $1", "state = 0 and $1::timestamptz is not null"),
            Mutant("look: longest staged first", "order by staged_at limit $2", "order by staged_at desc limit $2"),
            Mutant("look: passes over others", "limit $2 for update skip locked", "limit $2 for update"),
            Mutant("look: locks", "limit $2 for update skip locked", "limit $2"),
            Mutant("look: bytes", " where before < {MAX_BYTES}"),
            Mutant("stale: claimed", "claims > 0 and staged_at <", "staged_at <"),
            Mutant("stale: age", "claims > 0 and staged_at < outlast.clock() - interval '90 days'", "claims > 0"),
            Mutant(
                "quarantine: claimant", " and o.claimed_by is not distinct from $4", " and ($4::uuid is null or true)"
            ),
        ),
    ),
    Target(
        _DRIVER + "outbox_publish.py",
        OUTBOX_TESTS,
        (
            Mutant(
                "followers: same payload",
                "answer is not None and fingerprint == row.job.fingerprint",
                "answer is not None",
            ),
            Mutant("followers: remembered", "            await self._remember(led)\n"),
            Mutant(
                "refused rows stay",
                "if not isinstance(verdict, OutlastError):\n                    answers",
                "if True:\n                    answers",
            ),
            Mutant("careful after a bad value", "is_careful = True", "raise"),
        ),
    ),
    Target(
        _DRIVER + "purge.py",
        ("tests/conformance/test_outbox_publish.py",),
        (Mutant("sources: a day later", "outlast.clock() - interval '1 day'", "outlast.clock()"),),
    ),
)

TARGETS = (LOW_WATER, CLAIM, SETTLE, RELEASE, HEARTBEAT, REAP, *BESIDE, *OUTBOX)
