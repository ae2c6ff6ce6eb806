"""What is changed on purpose in the statements of operators, and in those that keep and show the audit."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Target

_DRIVER = "app/drivers/postgres/"
_RACES = "tests/postgres/test_races_"

ACTIONS = (
    Target(
        _DRIVER + "run_now.py",
        ("tests/conformance/test_run_now.py", _RACES + "actions.py", "tests/postgres/test_tenant_wall.py"),
        (
            Mutant("tenant", "j.id = $1 and ($2::text is null or j.tenant = $2)", "j.id = $1 or $2 = ''"),
            Mutant(
                "its rank",
                "queue, rank, job_id, name_id, attempt, claim_no, crashes, interrupts from t),",
                "queue, rank | 1, job_id, name_id, attempt, claim_no, crashes, interrupts from t),",
            ),
            Mutant("its time is now", " and run_at > outlast.clock())", " and run_at is null)"),
            Mutant("sleeps alone", " and w.kind = {KIND_CODES[StepKind.SLEEP]}\n    and exists", "\n    and exists"),
            Mutant(
                "of a suspended run", "\n    and exists (select from outlast.suspended s where s.job_id = w.job_id)"
            ),
            Mutant("locks the sleeps", "order by w.name for update of w),", "order by w.name),"),
            Mutant("looks again while it sleeps", ' and found["sleeps"])', ' and not found["sleeps"])'),
            Mutant("looks again while it is delayed", "in {None, State.DELAYED} or", "is None or"),
            Mutant("ends the sleep at once", "        await wake(db)\n", "        return\n"),
        ),
    ),
    Target(
        _DRIVER + "held_still.py",
        (
            "tests/conformance/test_patch.py",
            "tests/conformance/test_delete.py",
            _RACES + "patch.py",
            _RACES + "actions.py",
            "tests/postgres/test_tenant_wall.py",
        ),
        (
            Mutant("tenant", " and ($2::text is null or j.tenant = $2)", " and ($2::text is null or $2 <> '')"),
            Mutant(
                "locks a suspended token",
                "outlast.suspended where job_id = (select id from e) for update)",
                "outlast.suspended where job_id = (select id from e))",
            ),
            Mutant("locks a ready token", "lateral ({READY_CTID}) x)) for update)", "lateral ({READY_CTID}) x)))"),
            Mutant(
                "locks a delayed token",
                "outlast.waiting where job_id = (select id from e) for update)",
                "outlast.waiting where job_id = (select id from e))",
            ),
            Mutant(
                "locks a held token",
                "outlast.held where job_id = (select id from e) for update)",
                "outlast.held where job_id = (select id from e))",
            ),
            Mutant(
                "locks an ended token",
                "outlast.finished where job_id = (select id from e) for update)",
                "outlast.finished where job_id = (select id from e))",
            ),
            Mutant("looks again", 'if found["is_locked"] or view.state is State.RUNNING:', "if True:"),
            Mutant("a running token is not waited for", " or view.state is State.RUNNING:", ":"),
        ),
    ),
    Target(
        _DRIVER + "patch.py",
        ("tests/conformance/test_patch.py", _RACES + "patch.py"),
        (
            Mutant("the lane stays", "(t.rank & {LIMITED | 1}), t.rank)", "(t.rank & {LIMITED} | 1), t.rank)"),
            Mutant("another number", "seq = nextval('outlast.token_seq'), moved", "moved"),
            Mutant("found by its id from now on", "moved = true,\n", "moved = t.moved,\n"),
            Mutant(
                "as old as it is",
                "coalesce(t.since, (select j.created_at from outlast.job j where j.id = $1))",
                "outlast.clock()",
            ),
            Mutant("tags are asked for", "case when $4 then $5::text[] else tags end", "coalesce($5::text[], tags)"),
            Mutant("the version", "        refuse_stale(still.view, versions)\n"),
            Mutant("the state", "        refuse_edit(still.view, patch)\n"),
            Mutant("a time to come", " or patch.run_at > still.now)", ")"),
            Mutant("a time that has passed", "if run_at <= still.now:", "if False:"),
            Mutant(
                "the same priority", "patch.priority if patch.priority != view.priority else None", "patch.priority"
            ),
            Mutant("nothing to change", "if before != after:\n            moved", "if True:\n            moved"),
        ),
    ),
    Target(
        _DRIVER + "delete.py",
        ("tests/conformance/test_delete.py", _RACES + "actions.py"),
        (
            Mutant("ledger", "a as (delete from outlast.attempt where job_id = $1),\n"),
            Mutant("time limits", "x as (delete from outlast.expiry where job_id = $1),\n"),
            Mutant("lines", "l as (delete from outlast.run_line where job_id = $1),\n"),
            Mutant("steps", "s as (delete from outlast.step where run_id = any(array(select run_id from j))),\n"),
            Mutant("the version", "        refuse_stale(still.view, versions)\n"),
            Mutant("the state", "        refuse_delete(still.view)\n"),
            Mutant("children of a held run", "if still.view.state is State.HELD:", "if False:"),
            Mutant(
                "who waits for a held job",
                "        await tell_parents(db, [job_id])\n    await tell_of",
                "    await tell_of",
            ),
            Mutant("a result is given on first", "    await tell_parents(db, [job_id])\n    view =", "    view ="),
        ),
    ),
    Target(
        _DRIVER + "audit.py",
        ("tests/conformance/test_audit.py", "tests/postgres/test_tenant_wall.py"),
        (
            Mutant("the job's tenant", ", (select j.tenant from outlast.job j where j.id = $4))", ", null)"),
            Mutant("once", '\non conflict (id) do nothing"""', '"""'),
            Mutant(
                "page: where it goes on", "($1::bigint is null or a.seq < $1)", "($1::bigint is null or a.seq <= $1)"
            ),
            Mutant("page: target", "($3::text is null or c.target = $3) and ", ""),
            Mutant("page: actor", "($4::text is null or c.actor = $4)", "($4::text is null or true)"),
            Mutant("page: tenant", " or c.tenant = $5)", " or c.tenant is not null)"),
            Mutant("page: what belongs to nobody", "c.tenant is null or c.tenant = $5", "c.tenant = $5"),
            Mutant("page: action", "($6::text is null or c.action = $6)", "($6::text is null or true)"),
            Mutant("page: kind", "($7::text is null or c.target_kind = $7)", "($7::text is null or true)"),
            Mutant("page: not before", "c.at >= $8", "c.at > $8"),
            Mutant("page: before", "c.at < $9", "c.at <= $9"),
        ),
    ),
)
