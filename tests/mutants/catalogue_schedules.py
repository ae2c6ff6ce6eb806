"""What is changed on purpose in the statements of schedules."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Target

_DRIVER = "app/drivers/postgres/"

_TESTS = ("tests/conformance/test_schedules.py", "tests/postgres/test_races_schedules.py")

SCHEDULES = (
    Target(
        _DRIVER + "schedules_decide.py",
        _TESTS,
        (
            Mutant(
                "decide: newest declaration",
                '(row["digest"], row["is_paused"]) != (plan.digest, plan.is_paused)',
                'row["is_paused"] != plan.is_paused',
            ),
            Mutant(
                "decide: pause",
                '(row["digest"], row["is_paused"]) != (plan.digest, plan.is_paused)',
                'row["digest"] != plan.digest',
            ),
            Mutant("decide: locks the schedule", "where name = $1 for update skip locked", "where name = $1"),
            Mutant("decide: waits for nobody", "where name = $1 for update skip locked", "where name = $1 for update"),
            Mutant("decide: what is known stays", " if planned.at not in known"),
            Mutant("live: not ended", "\n  and not exists (select from outlast.finished f where f.job_id = o.job_id)"),
            Mutant("live: fired", "o.schedule = $1 and o.outcome = 0 and", "o.schedule = $1 and"),
            Mutant("live: of this plan", "        if self._fired is not None:\n            return self._fired\n"),
            Mutant("watermark: never back", "greatest(watermark, $2)", "$2"),
            Mutant("fire: beside the minute", "now if now.microsecond else now + _MICROSECOND", "now"),
        ),
    ),
    Target(
        _DRIVER + "schedules_declare.py",
        _TESTS,
        (
            Mutant("declare: newest stands", "order by d.schedule, d.number desc", "order by d.schedule, d.number"),
            Mutant(
                "declare: shown lately",
                " and d.seen_at >= outlast.clock() - $2::interval\n",
                " and $2::interval is not null\n",
            ),
            Mutant("declare: expression begins anew", "(s.cron, s.tz) = (c.cron, c.tz)", "s.tz = c.tz"),
            Mutant("declare: zone begins anew", "(s.cron, s.tz) = (c.cron, c.tz)", "s.cron = c.cron"),
            Mutant(
                "declare: anew only with a start",
                "where $8 and d.seen_at < outlast.clock() - $7::interval\n    union all"
                " select d.published_at, d.number where not $8 or d.seen_at",
                "where d.seen_at < outlast.clock() - $7::interval\n    union all"
                " select d.published_at, d.number where $8 is not null and d.seen_at",
            ),
            Mutant(
                "pause: first stands", "paused_at = coalesce(paused_at, outlast.clock())", "paused_at = outlast.clock()"
            ),
            Mutant("pause: who first", "case when paused_at is null then $2 else paused_by end", "$2"),
            Mutant("resume: catches up nothing", "greatest(watermark, outlast.clock())", "watermark"),
            Mutant(
                "resume: only what is paused",
                "case when paused_at is null then watermark else greatest(watermark, outlast.clock()) end",
                "greatest(watermark, outlast.clock())",
            ),
            Mutant("trim: age", "decided_at < outlast.clock() - $1::interval", "$1::interval is not null"),
            Mutant("trim: waits for nobody", "limit $2 for update skip locked", "limit $2 for update"),
        ),
    ),
)
