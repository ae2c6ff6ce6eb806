"""What is changed on purpose in the statements of webhooks, and in the one that tells of ends."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, Target

_DRIVER = "app/drivers/postgres/"
_TESTS = (
    *("tests/conformance/test_webhooks.py", "tests/conformance/test_webhook_ends.py"),
    "tests/postgres/test_tenant_wall.py",
)

WEBHOOKS = (
    Target(
        _DRIVER + "callbacks.py",
        _TESTS,
        (
            Mutant("the ends that were asked for", " and (j.asked->>'on')::int >> e.state & 1 = 1"),
            Mutant("another address", "j.asked->>'url'", "null"),
        ),
    ),
    Target(
        _DRIVER + "webhook_carry.py",
        _TESTS,
        (
            Mutant(
                "looks for those that nobody carries", "where d.carrier is null and d.state = {PENDING} order", "order"
            ),
            Mutant("those that nobody carries", "where d.carrier is null and d.state = {PENDING}\norder", "order"),
            Mutant("each its own", "u(id, carrier) where d.id = u.id", "u(id, carrier)"),
        ),
    ),
    Target(
        _DRIVER + "webhooks.py",
        _TESTS,
        (
            Mutant(
                "tenant of one",
                'w where w.id = $1 and ($2::text is null or w.tenant = $2)"  # noqa: S608\n_LIST',
                "w where w.id = $1 and ($2::text is null or $2 <> '')\"  # noqa: S608\n_LIST",
            ),
            Mutant(
                "tenant of a list",
                "where ($1::text is null or w.tenant = $1)\n",
                "where ($1::text is null or $1 <> '')\n",
            ),
            Mutant("a version", "if version not in {None, held}:", "if version is None and not held:"),
            Mutant("the secret before", "and w.secret_no = $3 - 1 returning", "returning"),
            Mutant("deliveries go with it", "webhook = any(array(select id from w))", "webhook is null"),
            Mutant(
                "tenant of deliveries",
                "where d.webhook = $1 and ($2::text is null or d.tenant = $2)\n",
                "where d.webhook = $1 and ($2::text is null or $2 <> '')\n",
            ),
            Mutant("page by page", "(d.ended_at, d.id) < ($3, $4::uuid)", "d.ended_at < $3 and $4::uuid is not null"),
            Mutant(
                "the job that carries it",
                "where d.id = $1 and d.carrier = $2 returning",
                "where d.id = $1 and $2::uuid is not null returning",
            ),
            Mutant("the newest tries", "d.tries::jsonb - 0 else", "d.tries::jsonb else"),
            Mutant("gone", "where $5::boolean and w.id", "where $5::boolean is not null and w.id"),
            Mutant("on its way", 'if found["state"] == PENDING:', "if found is None:"),
            Mutant("its webhook's own", ' or found["webhook"] != webhook_id'),
        ),
    ),
)
