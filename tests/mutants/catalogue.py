"""What is changed on purpose: a predicate of a statement, or a rule of the low-water mark, one at a time.

Each file's mutants are judged by the tests named with it, the likeliest to notice first. Here are the statements of a
job's way through a worker; `catalogue_looks` has the low-water mark, `catalogue_beside` the others,
`catalogue_outbox` those of the outbox, `catalogue_runs` those of runs with steps,
`catalogue_schedules` those of schedules, `catalogue_purge` those of purges,
`catalogue_actions` those of operators, `catalogue_limits` those of limits.
"""

from __future__ import annotations

from tests.mutants.catalogue_actions import ACTIONS
from tests.mutants.catalogue_beside import BESIDE
from tests.mutants.catalogue_bulk import BULK
from tests.mutants.catalogue_limits import LIMITS
from tests.mutants.catalogue_looks import LOOKS
from tests.mutants.catalogue_moves import MOVES
from tests.mutants.catalogue_outbox import OUTBOX
from tests.mutants.catalogue_purge import PURGES
from tests.mutants.catalogue_queues import QUEUES
from tests.mutants.catalogue_runs import RUNS
from tests.mutants.catalogue_schedules import SCHEDULES
from tests.mutants.catalogue_webhooks import WEBHOOKS
from tests.mutants.mutant import Case, Mutant, Target

_DRIVER = "app/drivers/postgres/"
_RACES = "tests/postgres/test_races_"
_ROUTES = "tests/postgres/test_predicates.py"

SETTLE = Target(
    _DRIVER + "settle.py",
    (
        _ROUTES,
        *("tests/postgres/test_settle_fence.py", "tests/postgres/test_settle_done.py"),
        *("tests/postgres/test_lost_worker.py", "tests/conformance/test_settle_fence.py"),
        *("tests/postgres/test_plans.py", "tests/conformance/test_settle.py", _RACES + "beside.py"),
        *("tests/conformance/test_sweep.py", "tests/postgres/test_buffers.py"),
    ),
    (
        Mutant("id is in the batch", "any($1::uuid[])\n    and (", "any($1::uuid[]) is not null\n    and ("),
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
        Mutant("short: other outcomes", " or type(settlement.outcome) is not Completed"),
        Mutant("short: its own result", "($5::text[])[p], coalesce(($6", "($5::text[])[1], coalesce(($6"),
        Mutant("short: late", "coalesce(($6::boolean[])[p], false)", "coalesce(($6::boolean[])[1], false)"),
        Mutant(
            "in the order of sequences",
            "sorted(settlements.items(), key=lambda item: item[1].token.fence)",
            "settlements",
        ),
        Mutant("a snooze is a start", "\n    where g.target = {_SNOOZE}))),", "))),"),
        Mutant("a start ends one limit only", "e.job_id = g.job_id and e.kind = {NOT_STARTED}", "e.job_id = g.job_id"),
    ),
)

LOCK_ORDER = Target(
    _DRIVER + "lock_order.py",
    (_RACES + "lock_order.py", "tests/postgres/test_lock_order.py"),
    (
        Mutant("lock order", "  order by r.job_id for update", "  for update"),
        Mutant("locks", "  order by r.job_id for update", "  order by r.job_id"),
        Mutant("locks what it settles", "r where r.job_id = any($1::uuid[]) and r.seq = any($2::bigint[])\n", "r\n"),
        Mutant("locks no later claim", " and r.seq = any($2::bigint[])\n", "\n"),
        Mutant("settles what it locked", "any(array(select job_id from locked))", "any($1::uuid[])"),
        Mutant("where plans are not ours", "self.usual if db.plans_are_ours else self.locking_first", "self.usual"),
        Mutant("only there", "self.usual if db.plans_are_ours else ", ""),
    ),
)

FUSED = Target(
    _DRIVER + "settle_and_claim.py",
    (
        *(_RACES + "fused.py", "tests/conformance/test_settle_and_claim.py"),
        *("tests/postgres/test_settle_fence.py", "tests/conformance/test_queue_limits.py"),
    ),
    (
        Mutant("a settle before tokens are locked", 'f"{_SETTLED_FIRST}{MAY_CLAIM}"', "MAY_CLAIM"),
        Mutant("twice the same claim", "len(fences) < len(settlements) or "),
        Mutant("nothing to settle", "not settlements or "),
        Mutant("no room", " or request.room <= 0"),
        Mutant("places that it frees", " or db.limited.has_any(fences)"),
        Mutant(
            "in the order of sequences",
            "sorted(range(len(settlements)), key=lambda index: settlements[index].token.fence)",
            "list(range(len(settlements)))",
        ),
    ),
)

CLAIM = Target(
    _DRIVER + "claim.py",
    (
        _ROUTES,
        *("tests/conformance/test_claim.py", "tests/postgres/test_lost_worker.py"),
        *("tests/postgres/test_low_water.py", "tests/postgres/test_plans.py", "tests/postgres/test_set_aside.py"),
        *(_RACES + "claim.py", "tests/postgres/test_buffers.py", "tests/conformance/test_queue_limits.py"),
    ),
    (
        Mutant("worker not lost", "select lost_at is null and closed_at is null", "select closed_at is null"),
        Mutant("worker not closed", "lost_at is null and closed_at is null", "lost_at is null"),
        Mutant("lease not passed", " and lease_until > outlast.clock()"),
        Mutant("queue not paused", " and l.is_paused is not true"),
        Mutant("places that are free", "l.places) as room", "s.room) as room"),
        Mutant("one queue: limited ones apart", "from gate where not is_limited),", "from gate),"),
        Mutant("several: limited ones apart", "from nx where not is_limited),", "from nx),"),
        Mutant(
            "claims of limited queues are told apart", "job._replace(is_limited=True) if seq in limited else job", "job"
        ),
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
        Mutant("looks on for those put aside", "elif head[PLANNED]", "if head[PLANNED]"),
    ),
)

SET_ASIDE = Target(
    _DRIVER + "set_aside.py",
    ("tests/postgres/test_set_aside.py",),
    (
        Mutant("fence: id", "r.job_id = any($2::uuid[]) and", "$2::uuid[] is not null and"),
        Mutant("fence: worker", "r.worker = $1 and", "$1::int is not null and"),
        Mutant("fence: sequence", "r.seq = any($3::bigint[]) order", "$3::bigint[] is not null order"),
        Mutant("uncounted", "attempt - 1, claim_no", "attempt, claim_no"),
    ),
)

RELEASE = Target(
    _DRIVER + "release.py",
    (
        _ROUTES,
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
        Mutant(
            "reconcile: claimed before",
            "o.claimed_at < coalesce($3::timestamptz, 'infinity')",
            "coalesce($3::timestamptz, 'infinity') is not null",
        ),
    ),
)

_ALIVE = "lost_at is null and closed_at is null and lease_until > outlast.clock()"
_RENEWED = f"{_ALIVE}\n  returning drain_asked_by"
_ABANDONED = f"{_ALIVE} returning id"

HEARTBEAT = Target(
    _DRIVER + "heartbeat.py",
    (
        _ROUTES,
        *("tests/conformance/test_heartbeat.py", "tests/postgres/test_lost_worker.py", _RACES + "reap.py"),
        *(_RACES + "beside.py", "tests/postgres/test_plans.py"),
    ),
    (
        Mutant("renew: worker not lost", _RENEWED, _RENEWED.replace("lost_at is null and ", "")),
        Mutant("renew: worker not closed", _RENEWED, _RENEWED.replace("closed_at is null and ", "")),
        Mutant("renew: lease not passed", _RENEWED, _RENEWED.replace(" and lease_until > outlast.clock()", "")),
        Mutant("revoked: other sequence", "is distinct from t.seq", "is null and t.seq > 0"),
        Mutant("revoked: other worker", " and (r.worker = $1) is true"),
        Mutant("abandon: worker not lost", _ABANDONED, _ABANDONED.replace("lost_at is null and ", "")),
        Mutant("abandon: worker not closed", _ABANDONED, _ABANDONED.replace("closed_at is null and ", "")),
        Mutant("abandon: lease not passed", _ABANDONED, _ABANDONED.replace(" and lease_until > outlast.clock()", "")),
        Mutant("abandon: job id", "r.job_id = t.id and r.seq = t.seq", "r.seq = t.seq"),
        Mutant("abandon: sequence", "r.seq = t.seq and "),
        Mutant("abandon: claim number", "r.claim_no = t.claim_no and "),
        Mutant("abandon: worker", " and r.worker = me.id"),
        Mutant("abandon: lock order", "  order by r.job_id for update of r", "  for update of r"),
    ),
)

REAP = Target(
    _DRIVER + "reap.py",
    (
        _ROUTES,
        *("tests/conformance/test_reap.py", "tests/postgres/test_lost_worker.py", _RACES + "reap.py"),
        *(
            _RACES + "settle.py",
            _RACES + "cancel.py",
            _RACES + "claim.py",
            _RACES + "beside.py",
            _RACES + "lock_order.py",
        ),
        *("tests/postgres/test_maintenance.py", "tests/postgres/test_failover.py"),
        "tests/conformance/test_heartbeat.py",
    ),
    (
        Mutant("not soon after a promotion", "\n  and {_PROMOTED_LONG_AGO}"),
        Mutant("renewed since the promotion", " or renewed_at > {_LAST_BEFORE} or exists", " or exists"),
        Mutant("seen since the promotion", "v.renewed_at > {_LAST_BEFORE} and worker.", "worker."),
        Mutant("since the first registration", "when v.started_at > {_LAST_BEFORE} then", "when false then"),
        Mutant(
            "since a lease that outlived it",
            "else {_LAST_BEFORE} + v.lease_ms * interval '1 ms' end",
            "else v.started_at end",
        ),
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
        Mutant("leaves the living alone", "w.id = r.worker and w.lost_at", "w.lost_at"),
        Mutant("surrender: own claims", " o where o.worker = $1", " o"),
        Mutant("surrender: worker before claims", " and (select count(*) from closing) >= 0"),
        Mutant("surrender: lock order", "  order by job_id for update),", "  for update),"),
        Mutant("abandoned is no crash", "when g.abandoned or {_LEFT_IN_ORDER}", "when {_LEFT_IN_ORDER}"),
        Mutant("closed before it was lost", "w.closed_at is not null and w.lost_at is null", "w.closed_at is not null"),
        Mutant("dies of crashes only", "outcome = {_CRASHED} and alone and crashes", "alone and crashes"),
        Mutant("dies alone only", "outcome = {_CRASHED} and alone and crashes", "outcome = {_CRASHED} and crashes"),
        Mutant("dies of its last crash only", " and crashes + 1 >= max_crashes as is_dead", " as is_dead"),
        Mutant("last crash counts alone only", "(alone or crashes + 1 < coalesce(max_crashes, 32767))", "true"),
        Mutant("ready unless dead", "where is_dead is not true order", "where not is_dead order"),
    ),
)

ENQUEUE = Target(
    _DRIVER + "enqueue_statements.py",
    (
        _ROUTES,
        *("tests/postgres/test_enqueue_statements.py", "tests/postgres/test_low_water.py"),
        *("tests/conformance/test_enqueue_keys.py", "tests/postgres/test_enqueue_race.py"),
        *("tests/conformance/test_enqueue.py", "tests/conformance/test_queue_depth.py"),
        *("tests/postgres/test_fair_turns.py", "tests/conformance/test_fair_queues.py"),
    ),
    (
        Mutant("queues with a maximum", "(q.max_depth is not null or q.fair)", "(q.fair)"),
        Mutant("fair queues", "(q.max_depth is not null or q.fair)", "(q.max_depth is not null)"),
        Mutant("fair queues: by who has counted", "(q.fair or {_UNCOUNTED.format", "({_UNCOUNTED.format"),
        Mutant("maxima: of those not counted", " and q.name <> all((", " and q.name is null and q.name <> all(("),
        Mutant("fair queues: as they are now", "  where q.fair and q.name", "  where q.name"),
        Mutant(
            "fair queues: their own line",
            "from a where seq is not null and not is_fair),",
            "from a where seq is not null),",
        ),
        Mutant("short: counted first", "where {_LIMITED} is null and {_ID_FIRST}", "where {_ID_FIRST}"),
        Mutant("counted first", "(select queues from limited) is null and ", ""),
        Mutant("id before number", '"(select pg_current_xact_id()) is not null"', '"true"'),
        Mutant("live key", "l.hash = n.hash and (not l.ended or l.expires_at > outlast.clock())", "l.hash = n.hash"),
        Mutant("taken over only when ended", "\n    where l.ended and l.expires_at", "\n    where l.expires_at"),
        Mutant("taken over only past its window", " and l.expires_at <= outlast.clock()\n  returning", "\n  returning"),
        Mutant("key won", "(hash is null or id in (select job_id from k))", "true"),
        Mutant("source won", "\n    and (source_id is null or id in (select job_id from s))"),
        Mutant("what is known is not stored", " where ord not in (select ord from known)"),
        Mutant("keys in the order of hashes", "where hash is not null order by hash", "where hash is not null"),
        Mutant("sources in order", "where source_id is not null order by source_id", "where source_id is not null"),
        Mutant("sources remembered in order", "order by u.source_id on conflict", "on conflict"),
        Mutant("window of its own key", "l.hash = j.key_hash and l.job_id = u.id", "l.hash = j.key_hash"),
    ),
)

ENQUEUE_COLUMNS = Target(
    _DRIVER + "enqueue_columns.py",
    (
        *("tests/postgres/test_enqueue_statements.py", "tests/conformance/test_enqueue_keys.py"),
        *("tests/conformance/test_enqueue.py", "tests/conformance/test_sweep.py"),
        "tests/conformance/test_events_from.py",
    ),
    (
        Mutant("short: key", "job.key is not None\n            or "),
        Mutant("short: source", "            or job.source_id is not None\n"),
        Mutant("short: delay", "            or job.delay is not None\n"),
        Mutant("short: time", "            or job.run_at is not None\n"),
        Mutant("short: deadline", "            or job.deadline is not None\n"),
        Mutant("short: time in the queue", "            or job.max_queue_time is not None\n"),
        Mutant("time of the staging", "job.staged_at for job", "None for job"),
        Mutant("one value for all", "values.count(values[0]) == len(values)", "True"),
        Mutant("nothing for nulls", "values.count(None) == len(values)", "None in values"),
    ),
)

TARGETS = (
    ENQUEUE,
    ENQUEUE_COLUMNS,
    CLAIM,
    SET_ASIDE,
    SETTLE,
    LOCK_ORDER,
    FUSED,
    RELEASE,
    HEARTBEAT,
    REAP,
    *BESIDE,
    *LOOKS,
    *OUTBOX,
    *QUEUES,
    *MOVES,
    *RUNS,
    *SCHEDULES,
    *WEBHOOKS,
    *PURGES,
    *ACTIONS,
    *BULK,
    *LIMITS,
)
CASES = tuple(Case(target, mutant) for target in TARGETS for mutant in target.mutants)
