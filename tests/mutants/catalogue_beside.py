"""What is changed on purpose in the statements beside a worker's own: operators', maintenance's and readers'."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Target

_DRIVER = "app/drivers/postgres/"
_RACES = "tests/postgres/test_races_"
_ROUTES = "tests/postgres/test_predicates.py"
_ROUTES_BESIDE = "tests/postgres/test_predicates_beside.py"

_TENANT = "and ($2::text is null or j.tenant = $2)"
_ANY_TENANT = "and ($2::text is null or true)"

CANCEL = Target(
    _DRIVER + "cancel.py",
    (
        _ROUTES,
        *("tests/conformance/test_cancel.py", _RACES + "cancel.py", _RACES + "claim.py", _RACES + "settle.py"),
        *(_RACES + "beside.py", "tests/postgres/test_plans.py", "tests/conformance/test_failed_calls.py"),
        "tests/postgres/test_tenant_wall.py",
    ),
    (
        Mutant("calls that have failed stay", " and not ({IS_KEPT.strip()})"),
        Mutant(
            "dropped by the caller: calls that have failed stay",
            "select w.ctid from w where not w.stays",
            "select w.ctid from w",
        ),
        Mutant("tenant", _TENANT, _ANY_TENANT),
        Mutant(
            "its own claim",
            "where job_id = (select id from e) returning {_COUNTERS}, seq",
            "returning {_COUNTERS}, seq",
        ),
        Mutant("its own waiting token", "outlast.waiting where job_id = (select id from e)", "outlast.waiting"),
        Mutant("its own held token", "outlast.held where job_id = (select id from e)", "outlast.held"),
    ),
)

BUCKETS = Target(
    _DRIVER + "buckets.py",
    (
        _ROUTES,
        *("tests/conformance/test_cancel.py", "tests/postgres/test_plans.py", "tests/conformance/test_describe.py"),
        *("tests/postgres/test_plans_beside.py", "tests/postgres/test_buffers.py"),
    ),
    (
        Mutant("ready: fresh by its number", " and r.seq = e.seq and r.job_id", " and r.job_id"),
        Mutant("ready: fresh by its id", " and r.seq = e.seq and r.job_id = e.id", " and r.seq = e.seq"),
        Mutant("ready: moved only", "r.job_id = e.id and r.moved", "r.job_id = e.id"),
        Mutant("token: fresh by its number", " and t.seq = e.seq and t.job_id", " and t.job_id"),
        Mutant("token: fresh by its id", " and t.seq = e.seq and t.job_id = e.id", " and t.seq = e.seq"),
        Mutant("token: moved only", "t.job_id = e.id and t.moved", "t.job_id = e.id"),
    ),
)

EXPIRE = Target(
    _DRIVER + "expire.py",
    (
        _ROUTES_BESIDE,
        *("tests/conformance/test_sweep.py", "tests/postgres/test_maintenance.py", _RACES + "beside.py"),
        "tests/postgres/test_plans_beside.py",
    ),
    (
        Mutant("passed", "x.at <= outlast.clock() and not exists", "not exists"),
        Mutant("not while it runs", " and not exists (select from outlast.running r where r.job_id = x.job_id)"),
        Mutant("the longest past first", "order by x.at limit", "order by x.at desc limit"),
        Mutant("passes over another sweep", "limit $1 for update of x skip locked", "limit $1 for update of x"),
        Mutant("not begun, or past its deadline", '"(e.deadline_at is not null or not e.begun)"', '"true"'),
        Mutant(
            "passes over a claim",
            "t.job_id = e.id and {_FITS}\n    for update skip locked) x",
            "t.job_id = e.id and {_FITS}\n    for update) x",
        ),
        Mutant(
            "passes over a claim of what moved",
            "t.moved and {_FITS} for update skip locked",
            "t.moved and {_FITS} for update",
        ),
        Mutant(
            "passes over a promote",
            "outlast.waiting t where t.job_id = e.id and {_FITS} for update skip locked",
            "outlast.waiting t where t.job_id = e.id and {_FITS} for update",
        ),
        Mutant(
            "held: deadline only",
            "held t where t.job_id = e.id and e.deadline_at is not null",
            "held t where t.job_id = e.id",
        ),
        Mutant(
            "held: passes over a cancel",
            "held t where t.job_id = e.id and e.deadline_at is not null for update skip locked",
            "held t where t.job_id = e.id and e.deadline_at is not null for update",
        ),
        Mutant(
            "suspended: deadline only",
            "\n    where t.job_id = e.id and (e.deadline_at is null) is false",
            "\n    where t.job_id = e.id",
            equivalent="what suspends a run drops the limit on its start, so that a deadline is the only one left",
        ),
        Mutant("clears what has ended", "or e.id is null or t.finished_at is not null", "or e.id is null"),
        Mutant("clears what is gone", "or e.id is null or t.finished_at", "or t.finished_at"),
        Mutant("clears what it ended", "d.job_id = any(array(select job_id from gone)) or "),
        Mutant("a start clears one limit only", "(d.kind = {NOT_STARTED}\n      and exists", "(exists"),
        Mutant(
            "only a start clears it",
            "(d.kind = {NOT_STARTED}\n      and exists (select from outlast.attempt a where a.job_id = d.job_id))",
            "d.kind = {NOT_STARTED}",
        ),
        Mutant("clears the limit it names", "x.job_id = m.job_id and x.kind = m.kind", "x.job_id = m.job_id"),
    ),
)

PROMOTE = Target(
    _DRIVER + "promote.py",
    ("tests/conformance/test_sweep.py", _RACES + "cancel.py", _RACES + "beside.py", "tests/postgres/test_buffers.py"),
    (
        Mutant("due", " and due_at <= outlast.clock()\n", "\n"),
        Mutant("from the mark on", "due_at >= $2 and ", "$2::timestamptz is not null and "),
        Mutant("the longest due first", "order by due_at limit", "order by due_at desc limit"),
        Mutant("passes over a cancel", " for update skip locked", " for update"),
        Mutant("order of due times", " order by due_at, job_id"),
    ),
)

DUE = Target(
    _DRIVER + "due.py",
    ("tests/conformance/test_due.py", "tests/conformance/test_limits.py", "tests/postgres/test_buffers.py"),
    (
        Mutant("the next one due", "$1 order by w.due_at limit 1", "$1 order by w.due_at desc limit 1"),
        Mutant("from the mark on", " where w.due_at >= $1 order", " where $1::timestamptz is not null order"),
        Mutant("passed limits", " x where {PASSED} order", " x order"),
        Mutant("lapsed workers", "outlast.worker where {LAPSED}", "outlast.worker where false"),
        Mutant("orphaned claims", "outlast.running r where {ORPHANED}", "outlast.running r where false"),
        Mutant("orphaned slots", "outlast.slot r where {ORPHANED}", "outlast.slot r where false"),
    ),
)

DUE_MARK = Target(
    _DRIVER + "due_mark.py",
    ("tests/unit/test_due_mark.py", "tests/postgres/test_maintenance.py"),
    (
        Mutant("a new connection", "connection not in self._seen or "),
        Mutant("time", " or self.monotonic() >= self._forget_at"),
        Mutant("margin", " - MARGIN"),
    ),
)

KEYS = Target(
    _DRIVER + "keys.py",
    (
        _ROUTES,
        *("tests/conformance/test_enqueue_keys.py", "tests/conformance/test_settle.py", _RACES + "settle.py"),
        *("tests/conformance/test_cancel.py", "tests/postgres/test_plans.py"),
    ),
    (
        Mutant("own key", "\n    and k.job_id = any(array(select job_id from ended where key_hash is not null))"),
        Mutant("lock order", "order by k.hash for update", "for update"),
        Mutant(
            "window over",
            " where not stays",
            equivalent="the part that keeps a row runs first, and a statement writes a row once; kept, as nobody"
            " promises that order",
        ),
        Mutant("window lasts", " where stays"),
    ),
)

SMALL = (
    Target(
        _DRIVER + "workers.py",
        (_ROUTES_BESIDE, "tests/conformance/test_workers.py", "tests/conformance/test_reap.py"),
        (
            Mutant("register: not lost", "where w.lost_at is null and ", "where "),
            Mutant("register: not closed", "and w.closed_at is null and w.lease_until", "and w.lease_until"),
            Mutant("register: lease not passed", " and w.lease_until > outlast.clock()"),
            Mutant(
                "register: gives up its own boot",
                "gen_random_uuid() where boot_id = $1",
                "gen_random_uuid() where $1 is not null",
            ),
            Mutant("show: what was said first", "coalesce(drain_asked_at, outlast", "(outlast"),
            Mutant("ask: a signal has no name", "drain_asked_by is null then", "drain_asked_at is null then"),
            Mutant("ask: the first stands", "coalesce(drain_asked_by, $2)", "$2"),
            Mutant("ask: not closed", "lost_at is null and closed_at is null and lease", "lost_at is null and lease"),
            Mutant("ask: lease not passed", " and lease_until > outlast.clock() returning id", " returning id"),
            Mutant("left: not lost", "closed_at is not null and lost_at is null or", "closed_at is not null or"),
            Mutant("left: at the drain's close", " or drain_phase is not distinct from '{LAST_PHASE}'"),
            Mutant("close: once", "where id = $1 and closed_at is null and", "where id = $1 and"),
            Mutant(
                "close: a lost worker stays lost",
                " and closed_at is null and lost_at is null\n",
                " and closed_at is null\n",
            ),
        ),
    ),
    Target(
        _DRIVER + "names.py",
        (_ROUTES, "tests/conformance/test_enqueue.py", "tests/postgres/test_enqueue_race.py"),
        (
            Mutant(
                "not those there are",
                "  where not exists (select from outlast.job_name n where n.name = w.name) order",
                "  order",
            ),
            Mutant("in order", " order by w.name\n", "\n"),
        ),
    ),
    Target(
        _DRIVER + "superseded.py",
        ("tests/conformance/test_settle_fence.py", "tests/conformance/test_heartbeat.py"),
        (
            Mutant("cancelled", "select f.state = {CANCELLED} from", "select true from"),
            Mutant(
                "its own end", " from outlast.finished f where f.job_id = t.id)", " from outlast.finished f limit 1)"
            ),
            Mutant("its own envelope", "from outlast.job j where j.id = t.id)", "from outlast.job j limit 1)"),
        ),
    ),
    Target(
        _DRIVER + "ledger.py",
        ("tests/postgres/test_maintenance.py",),
        (
            Mutant("its own rows", "where o.job_id = c.job_id order by", "order by"),
            Mutant(
                "counts its own rows", "from outlast.attempt n where n.job_id = c.job_id)", "from outlast.attempt n)"
            ),
            Mutant(
                "long ones only",
                " where c.claim_no > {FIRST_KEPT + LAST_KEPT}",
                equivalent="a job has one row a claim at most, so up to this number the limit is nought; kept, as it"
                " spares most jobs the count",
            ),
        ),
    ),
    Target(
        _DRIVER + "describe.py",
        (_ROUTES_BESIDE, "tests/conformance/test_describe.py", "tests/postgres/test_tenant_wall.py"),
        (Mutant("tenant", "and ($2::text is null or e.tenant = $2)", "and ($2::text is null or true)"),),
    ),
    Target(
        _DRIVER + "listing.py",
        (
            _ROUTES_BESIDE,
            "tests/conformance/test_list.py",
            "tests/conformance/test_list_filters.py",
            "tests/postgres/test_reading.py",
            "tests/postgres/test_tenant_wall.py",
        ),
        (Mutant("list: tenant", "and ($5::text is null or e.tenant = $5)", "and ($5::text is null or true)"),),
    ),
    Target(
        _DRIVER + "dead_letters.py",
        (
            _ROUTES_BESIDE,
            "tests/conformance/test_list.py",
            "tests/conformance/test_dead_letters.py",
            "tests/postgres/test_tenant_wall.py",
        ),
        (
            Mutant("tenant", "and ($1::text is null or j.tenant = $1)", "and ($1::text is null or true)"),
            Mutant("state", "\n  where f.state = {DEAD})", ")"),
            Mutant("the newest", "max(d.job_id::text", "min(d.job_id::text"),
        ),
    ),
)

BESIDE = (CANCEL, BUCKETS, EXPIRE, PROMOTE, DUE, DUE_MARK, KEYS, *SMALL)
