"""What is changed on purpose in the statements of bulk operations."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Target

_DRIVER = "app/drivers/postgres/"
_STORE = "tests/conformance/test_bulk.py"
_GOES_ON = "tests/conformance/test_bulk_goes_on.py"
_ACTIONS = "tests/conformance/test_bulk_actions.py"
_RACES = "tests/postgres/test_races_bulk.py"
_RUN_NOW = "tests/conformance/test_bulk_run_now.py"
_RACES_OF_RUN_NOW = "tests/postgres/test_races_bulk_run_now.py"

BULK = (
    Target(
        _DRIVER + "bulk_make.py",
        (_STORE, _GOES_ON),
        (
            Mutant("fit: tenant", "($1::text is null or j.tenant = $1) and", "($1::text is null or true) and"),
            Mutant("fit: queue", "($3::text is null or j.queue = $3)", "($3::text is null or true)"),
            Mutant("fit: name", "($2::text is null or j.name_id =", "(true or $2::text is null or j.name_id ="),
            Mutant("fit: from then on", "j.created_at >= $4", "j.created_at > $4"),
            Mutant("fit: before then", "j.created_at < $5", "j.created_at <= $5"),
            Mutant(
                "fit: codes of ended jobs", "where f.state = any($6::smallint[])", "where $6::smallint[] is not null"
            ),
            Mutant("made once", "on conflict do nothing", "on conflict (id) do update set made_by = excluded.made_by"),
            Mutant("nothing to do is done", "state = case when $2 = 0 then 1 else 0 end", "state = 0"),
            Mutant("abort: tenant", " and ($2::text is null or tenant = $2) and state = 0", " and state = 0"),
            Mutant("abort: what runs", "tenant = $2) and state = 0", "tenant = $2)"),
            Mutant("trim: the last rows", " and (select count(*) from gone) < $1 returning id)", " returning id)"),
            Mutant("the count must hold", "    check_selected(bulk, selected)\n    return", "    return"),
        ),
    ),
    Target(
        _DRIVER + "bulk_acts.py",
        (_STORE, _GOES_ON, _RACES),
        (
            Mutant("tenant", "i.id and ($2::text is null or j.tenant = $2)", "i.id and ($2::text is null or true)"),
            Mutant("state fits", "where state = any($3::text[]))", "where state is not null)"),
            Mutant(
                "by ids it fails", "case when $4::boolean then {_FAILED}", "case when not $4::boolean then {_FAILED}"
            ),
        ),
    ),
    Target(
        _DRIVER + "bulk_step.py",
        (_STORE, _GOES_ON, _RACES),
        (
            Mutant("waits for nobody", "limit 1 for update skip locked", "limit 1 for update"),
            Mutant("one executor", "limit 1 for update skip locked", "limit 1"),
            Mutant("what runs", "where state = {_RUNNING} and", "where state >= {_RUNNING} and"),
            Mutant("that one", "($1::uuid is null or id = $1)", "($1::uuid is null or true)"),
            Mutant("in turn", "order by ($2::uuid is not null and id <= $2), id", "order by ($2::uuid is null), id"),
            Mutant("what is left", "i.bulk_id = $1 and i.verdict is null and (i.round", "i.bulk_id = $1 and (i.round"),
            Mutant("next round", "set round = round + 1\n", "set round = round\n"),
            Mutant("ends", "state = case when b.done", "state = case when b.done < 0 and b.done"),
        ),
    ),
    Target(
        _DRIVER + "bulk_cancel.py",
        (_ACTIONS, _STORE, _RACES),
        (
            Mutant(
                "running: waits for nobody", "order by r.job_id for update skip locked", "order by r.job_id for update"
            ),
            Mutant(
                "waits: for nobody",
                "order by w.job_id, w.name for update skip locked",
                "order by w.job_id, w.name for update",
            ),
            Mutant("with all its waits", "where coalesce(h.n, 0) = (", "where coalesce(h.n, 0) >= 0 * ("),
            Mutant(
                "suspended: waits for nobody",
                "order by s.job_id for update skip locked",
                "order by s.job_id for update",
            ),
            Mutant("callers are left", "where {_CALLS_NOBODY}", "where {_CALLS_NOBODY} or true"),
            Mutant(
                "waits are dropped",
                "select w.ctid from wts w join gone g on g.job_id = w.job_id",
                "select w.ctid from wts w where false",
            ),
            Mutant("uncounted", "attempt - 1 as attempt", "attempt as attempt"),
            Mutant("told apart: running", "case when worker is not null then", "case when worker is null then"),
            Mutant("told apart: begun", "when claim_no > 0 then", "when claim_no < 0 then"),
            Mutant(
                "held: still left",
                " and i.verdict is null)),\n{_ROWS",
                ")),\n{_ROWS",
                equivalent="the batch that named the job has marked nothing of it, and holds the only way to",
            ),
        ),
    ),
    Target(
        _DRIVER + "bulk_retry.py",
        (_STORE, _ACTIONS, _RACES),
        (
            Mutant(
                "retry: waits for nobody", "order by f.job_id for update skip locked", "order by f.job_id for update"
            ),
            Mutant("one of a key", "select distinct on (key_hash) job_id", "select job_id"),
            Mutant("the oldest of a key", "order by key_hash, job_id)", "order by key_hash, job_id desc)"),
            Mutant("whose key it is", "  where {MINE}\n", ""),
            Mutant("limits are over", "and (run_at is not null or deadline_at is not null)", "and run_at is not null"),
            Mutant(
                "expiries go",
                "x as (delete from outlast.expiry where",
                "x as (delete from outlast.expiry where false and",
            ),
            Mutant("refused by another", "k.hash = g.key_hash and k.job_id <> g.job_id", "k.hash = g.key_hash"),
            Mutant("refused by a live one", "and (not k.ended or k.expires_at > outlast.clock())", "and k.ended"),
            Mutant("release: resumed lane", "h.rank & -2, h.job_id", "h.rank | 1, h.job_id"),
        ),
    ),
    Target(
        _DRIVER + "bulk_delete.py",
        (_ACTIONS, _RACES),
        (
            Mutant(
                "waited for: left",
                "where (select true from outlast.wait w where w.child_id = f.id limit 1) is null",
                "where true",
            ),
            Mutant(
                "ended: waits for nobody", "order by t.job_id for update skip locked", "order by t.job_id for update"
            ),
            Mutant(
                "ledger goes",
                "a as (delete from outlast.attempt where",
                "a as (delete from outlast.attempt where false and",
            ),
            Mutant("key of a held job", "from hld h join one e on", "from hld h join one e on false and"),
        ),
    ),
    Target(
        _DRIVER + "bulk_edit.py",
        (_ACTIONS, _RUN_NOW, _RACES, _RACES_OF_RUN_NOW, "tests/conformance/test_limits_edits.py"),
        (
            Mutant("run now: its time", " and run_at > outlast.clock()),", " and run_at is null),"),
            Mutant("run now: sleeps alone", "\n    and w.kind = {KIND_CODES[StepKind.SLEEP]}\n  order", "\n  order"),
            Mutant(
                "run now: with all its sleeps",
                "  where h.n = (\n    select count(*)",
                "  where h.n <= (\n    select count(*)",
            ),
            Mutant(
                "run now: waits for no sleep",
                "  order by w.job_id, w.name for update skip locked),\nwhole",
                "  order by w.job_id, w.name for update),\nwhole",
            ),
            Mutant(
                "run now: waits for no token",
                "any(array(select job_id from whole))\n  order by s.job_id for update skip locked",
                "any(array(select job_id from whole))\n  order by s.job_id for update",
            ),
            Mutant(
                "run now: who sleeps not", "where f.state = '{State.SUSPENDED}' and {SLEEPS", "where false and {SLEEPS"
            ),
            Mutant(
                "put off: ready ones",
                "any(array(select ctid from rdy_rows)) and $5::timestamptz > outlast.clock()",
                "any(array(select ctid from rdy_rows)) and $5::timestamptz < outlast.clock()",
            ),
            Mutant(
                "brought forward",
                "and $5::timestamptz <= outlast.clock() returning *),\nlater",
                "and $5::timestamptz < '1970-01-01' returning *),\nlater",
            ),
            Mutant("priority: same stays", "rdy_rows)) and t.rank <> {_RANK} order by", "rdy_rows)) order by"),
            Mutant(
                "priority: in order",
                "rdy_rows)) and t.rank <> {_RANK} order by t.rank, t.seq)",
                "rdy_rows)) and t.rank <> {_RANK} order by t.rank, t.seq desc)",
            ),
            Mutant(
                "priority: gated in order",
                "gat_rows)) and t.rank <> {_RANK} order by t.rank, t.seq)",
                "gat_rows)) and t.rank <> {_RANK} order by t.rank, t.seq desc)",
            ),
            Mutant(
                "priority: suspended",
                "sus as (update outlast.suspended t set rank = {_RANK}",
                "sus as (update outlast.suspended t set rank = t.rank",
            ),
            Mutant(
                "priority: held",
                "hld as (update outlast.held t set rank = {_RANK}",
                "hld as (update outlast.held t set rank = t.rank",
            ),
            Mutant(
                "priority: delayed",
                "wai as (update outlast.waiting t set rank = {_RANK}",
                "wai as (update outlast.waiting t set rank = t.rank",
            ),
        ),
    ),
    Target(
        _DRIVER + "bulk_view.py",
        (_STORE, _GOES_ON),
        (
            Mutant("list: tenant", "($3::text is null or tenant = $3) order", "($3::text is null or true) order"),
            Mutant(
                "find: tenant",
                "where id = $1 and ($2::text is null or tenant = $2)",
                "where id = $1 and ($2::text is null or true)",
            ),
            Mutant(
                "verdicts: after",
                "i.verdict > 0 and ($2::uuid is null or i.job_id > $2)",
                "i.verdict > 0 and ($2::uuid is null or true)",
            ),
        ),
    ),
)
