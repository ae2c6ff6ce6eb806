"""What is changed on purpose in the statements of runs: their fences, their locks, and which waits end."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Target

_DRIVER = "app/drivers/postgres/"
_RACES = "tests/postgres/test_races_runs"
_EVENTS_FROM = "tests/conformance/test_events_from.py"
_FAILED = "tests/conformance/test_failed_calls.py"
_CIRCLES = "tests/conformance/test_call_circles.py"

RUNS = (
    Target(
        _DRIVER + "steps.py",
        (
            *("tests/conformance/test_steps.py", "tests/postgres/test_runs_fences.py", _RACES + "_fences.py"),
            "tests/postgres/test_plans.py",
        ),
        (
            Mutant("record: lease", " and w.lease_until > outlast.clock()"),
            Mutant("record: closed", "w.lost_at is null and w.closed_at is null and", "w.lost_at is null and"),
            Mutant("record: locks the claim", "order by r.job_id for key share", "order by r.job_id"),
            Mutant("record: only with the claim", "  where m.held_as is not null\n"),
            Mutant("record: fence", "h.seq = i.seq and h.claim_no = i.claim_no", "h.claim_no = i.claim_no"),
            Mutant("record: number", " and h.claim_no = i.claim_no"),
            Mutant("record: worker", "and r.worker = (", "and 0 < ("),
        ),
    ),
    Target(
        _DRIVER + "suspend.py",
        (
            *("tests/conformance/test_suspend.py", "tests/conformance/test_event_waits.py", _EVENTS_FROM),
            "tests/postgres/test_runs_fences.py",
            *("tests/conformance/test_children.py", "tests/conformance/test_known_children.py", _FAILED, _CIRCLES),
            *(_RACES + ".py", _RACES + "_ends.py", _RACES + "_many.py", "tests/postgres/test_plans.py"),
            "tests/postgres/test_races_call_circles.py",
        ),
        (
            Mutant("fence", "r.seq = $2 and r.claim_no = $3", "r.claim_no = $3"),
            Mutant("fence: number", "r.seq = $2 and r.claim_no = $3", "r.seq = $2"),
            Mutant("fence: lease", " and w.lease_until > outlast.clock())\n  for update", ")\n  for update"),
            Mutant(
                "fence: locks the claim",
                "w.lease_until > outlast.clock())\n  for update),",
                "w.lease_until > outlast.clock())),",
            ),
            Mutant("fence: locks its waits", "order by w.name for update)", "order by w.name)"),
            Mutant("event: since the enqueue", " and v.emitted_at >= e.since"),
            Mutant("event: since the staging", "least(j.created_at, j.events_from) as since", "j.created_at as since"),
            Mutant("event: not one it has taken", "where v.seq <> all(e.taken) order", "order"),
            Mutant("event: the first", "order by v.seq offset", "order by v.seq desc offset"),
            Mutant("event: one for each wait", "offset coalesce(w.nth, 1) - 1 limit 1", "limit 1"),
            Mutant("event: its tenant", "v.tenant = e.tenant and v.name", "v.name"),
            Mutant("a known wait that is over", " > (select count(*) from stays where is_asked)", " > 100000"),
            Mutant(
                "a known child that failed",
                "(select from stays where is_asked and (is_child_gone or child_state <> {DONE}))",
                "(select from stays where false)",
            ),
            Mutant(
                "a new child that failed",
                "(select from fresh where is_child_gone or child_state <> {DONE})",
                "(select from fresh where false)",
            ),
            Mutant(
                "no time before now",
                "then greatest(coalesce(f.until, outlast.clock() + f.delay), outlast.clock()) end",
                "then coalesce(f.until, outlast.clock() + f.delay) end",
            ),
            Mutant("has begun", " where job_id = $1 and kind = {NOT_STARTED}", " where false"),
            Mutant("what is asked for now", "w.awaited <> (s.is_asked and {LIVES})", "w.awaited <> ({LIVES})"),
            Mutant("told of a failure", "w.awaited <> (s.is_asked and {LIVES})", "w.awaited <> s.is_asked"),
            Mutant("told of a new child's failure", '{LIVES.replace("s.", "f.")}', "true"),
            Mutant(
                "only a done child it asks for",
                "from stays where child_state = {DONE} and is_asked\n",
                "from stays where child_state = {DONE}\n",
            ),
            Mutant("circles", "        refuse_circles(callers, caller, there)\n"),
            Mutant("locks of circles", "        shared += self.circle_locks\n"),
            Mutant(
                "locks of events",
                'return shared + [event_lock(db, tenant or "", event, key) for event, key in wanted]',
                "return shared",
            ),
            Mutant(
                "locks of shared children", "shared = [child_lock(db, child) for child in self.shared]", "shared = []"
            ),
        ),
    ),
    Target(
        _DRIVER + "events.py",
        (
            *("tests/conformance/test_events.py", "tests/conformance/test_event_waits.py"),
            *(_RACES + ".py", _RACES + "_ends.py", _RACES + "_many.py", "tests/postgres/test_plans.py"),
        ),
        (
            Mutant("locks the key", "            await take(conn, (event_lock(db, *key),))\n"),
            Mutant("locks the waits", "order by (w.job_id, w.name) for update", "order by (w.job_id, w.name)"),
            Mutant("tenant", "w.tenant = $1 and w.event = $2", "$1::text is not null and w.event = $2"),
            Mutant("key", " and w.event_key = $3", " and $3::text is not null"),
            Mutant("one of each run", "select distinct on (w.job_id) w.*", "select w.*"),
            Mutant(
                "the first that began", "order by w.job_id, w.began_at, w.number", "order by w.job_id, w.number desc"
            ),
        ),
    ),
    Target(
        _DRIVER + "waits.py",
        (
            *("tests/conformance/test_wake.py", "tests/conformance/test_children.py"),
            *("tests/conformance/test_known_children.py", _RACES + ".py", _RACES + "_ends.py"),
            *(_RACES + "_many.py", "tests/postgres/test_runs_cost.py", "tests/postgres/test_runs_fences.py"),
            *("tests/postgres/test_predicates_runs.py", _FAILED),
        ),
        (
            Mutant("due", " and w.due_at <= outlast.clock()\norder", "\norder"),
            Mutant("from the mark on", "where w.due_at >= $2 and", "where $2::timestamptz is not null and"),
            Mutant("passes over a suspend", "limit $1 for update skip locked", "limit $1 for update"),
            Mutant("the longest due first", "order by w.due_at limit", "order by w.due_at desc limit"),
            Mutant(
                "locks the child's end", "        await take(conn, (child_lock(db, child) for child in children))\n"
            ),
            Mutant("a failed child leaves no step", "f.state is distinct from {DONE} as is_kept", "false as is_kept"),
            Mutant(
                "only of an end",
                "(f.state is not null or c.id is null) and (w.awaited or f.state",
                "(w.awaited or f.state",
            ),
            Mutant("not of a run that was told", " and (w.awaited or f.state is distinct from {DONE})"),
            Mutant("tells once", "set awaited = false where", "set awaited = awaited where"),
            Mutant("of jobs that were there", "await _look_at_called(db)", "0"),
            Mutant(
                "sweep: only what is awaited",
                "'00000000-0000-0000-0000-000000000000') and w.awaited\n",
                "'00000000-0000-0000-0000-000000000000')\n",
            ),
            Mutant("sweep: calls of one child together", "rows with ties", "rows only"),
            Mutant(
                "sweep: only of suspended runs",
                "outlast.suspended d where d.job_id = w.job_id offset 0) d {CHILD}",
                "(select) u offset 0) d {CHILD}",
            ),
        ),
    ),
    Target(
        _DRIVER + "resolve.py",
        (
            *("tests/conformance/test_wake.py", "tests/conformance/test_suspend.py"),
            *("tests/conformance/test_known_children.py", _RACES + ".py", _RACES + "_ends.py"),
            *("tests/postgres/test_runs_fences.py", _FAILED),
        ),
        (
            Mutant("kept: once told", "(not w.awaited\n  or (select", "((select"),
            Mutant(
                "kept: once ended",
                "  or (select true from outlast.finished f where f.job_id = w.child_id limit 1) is not null\n",
            ),
            Mutant(
                "kept: once gone",
                "\n  or (select true from outlast.job j where j.id = w.child_id limit 1) is null)",
                ")",
                equivalent="a purge leaves a child that somebody waits for, a delete tells who waits before; kept for"
                " what an earlier release purged",
            ),
            Mutant(
                "before: its own branch",
                "w.branch = {branch}::text",
                "false and {branch}::text = ''",
                equivalent="in one branch times are in the order of numbers, unless the server's clock is set back",
            ),
            Mutant("before: other branches", "else w.began_at <= {end} end", "else true end"),
            Mutant(
                "only what is awaited",
                "(select o.job_id from over o where o.awaited or not o.is_kept)",
                "(select o.job_id from over o)",
            ),
            Mutant("resumed", "queue, rank & -2, job_id", "queue, rank | 1, job_id"),
            Mutant("what is kept has no step", "  where not o.is_kept\n"),
        ),
    ),
    Target(
        _DRIVER + "call_cycle.py",
        (_CIRCLES, "tests/postgres/test_races_call_circles.py"),
        (
            Mutant("only who waits", " and w.awaited"),
            Mutant(
                "only who lives",
                "\n  and (select true from outlast.finished f where f.job_id = w.job_id limit 1) is null",
            ),
            Mutant("locks those above", "(caller, *above, *called)", "(caller, *called)"),
            Mutant("locks the called", "(caller, *above, *called)", "(caller, *above)"),
            Mutant("through others", 'format(child="a.job_id")', 'format(child="null")'),
        ),
    ),
    Target(
        _DRIVER + "fork.py",
        (_FAILED, "tests/conformance/test_fork.py", _EVENTS_FROM),
        (
            Mutant(
                "failed calls go along",
                "where {IS_BEFORE",
                "where false and {IS_BEFORE",
            ),
            Mutant("only failed calls", " and {IS_KEPT.strip()}"),
            Mutant("events since the enqueue", "least(created_at, events_from)", "events_from"),
            Mutant("events since the staging", "least(created_at, events_from)", "created_at"),
        ),
    ),
    Target(
        _DRIVER + "settle_runs.py",
        ("tests/conformance/test_suspended_ends.py",),
        (
            Mutant("forgets no event that came", " and event_seq is null"),
            Mutant("forgets no other step", "\n  and kind = {KIND_CODES[StepKind.EVENT]}"),
            Mutant(
                "forgets of its own run",
                "run_id = (select coalesce(j.run_id, j.id) from outlast.job j where j.id = $1) and",
                "true and",
            ),
        ),
    ),
    Target(
        _DRIVER + "hand_back.py",
        (
            *("tests/conformance/test_hand_back.py", "tests/conformance/test_versions.py"),
            *("tests/postgres/test_runs_fences.py", _RACES + "_fences.py"),
        ),
        (
            Mutant("fence", "r.seq = $2 and r.claim_no = $3", "r.claim_no = $3"),
            Mutant("lease", " and w.lease_until > outlast.clock())\n  returning", ")\n  returning"),
            Mutant("only to who serves it", " and {_SERVED} then 'handed'", " then 'handed'"),
            Mutant(
                "not to its own code", 'None if about["newest"] == about["own"] else about["newest"]', 'about["newest"]'
            ),
        ),
    ),
    Target(
        _DRIVER + "versions.py",
        (
            *("tests/conformance/test_hand_back.py", "tests/conformance/test_versions.py"),
            *("tests/postgres/test_runs_fences.py", _RACES + "_fences.py"),
        ),
        (
            Mutant("an hour", "then h.until_at <= outlast.clock() or r.token_no", "then r.token_no"),
            Mutant("a claim ends it", " or r.token_no > h.claim_no"),
            Mutant(
                "its code is gone",
                "\n        or (select true from outlast.job j where j.id = h.job_id"
                ' and {served("h.version", "j.queue")}) is null',
            ),
            Mutant(
                "only what is pinned",
                " and r.{_KEPT}",
            ),
            Mutant("only who came since", " and x.held_at <= w.started_at + interval '1 minute'"),
            Mutant(
                "passes over a claim",
                "(array(select place from over where not is_gated)) for update skip locked",
                "(array(select place from over where not is_gated)) for update",
            ),
        ),
    ),
    Target(
        _DRIVER + "step_transaction.py",
        ("tests/postgres/test_step_transaction.py", _RACES + "_fences.py", "tests/postgres/test_step_frozen.py"),
        (
            Mutant(
                "no lock of the frozen", ", set_config('idle_in_transaction_session_timeout', {_PAUSE}::text, true)"
            ),
            Mutant("no longer than its lease", "least(w.lease_ms, {", "({"),
            Mutant("not for long", "least(w.lease_ms, {IDLE_IN_TRANSACTION_TIMEOUT.seconds}000)", "w.lease_ms"),
            Mutant("fence", "r.seq = :seq and r.claim_no = :claim_no", "r.claim_no = :claim_no"),
            Mutant("locks the claim", "\nfor key share"),
            Mutant("lease", ' and w.lease_until > outlast.clock()"', '"'),
        ),
    ),
)
