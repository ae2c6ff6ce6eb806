"""Since when events are for a job's run, where that is not since its enqueue.

Of a job that was staged in an outbox it is its staging, of a fork what it is of the job it was made from.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

# Not looked at are the rows there are, which may be many: the next step does that under a lock that nobody waits for.
STATEMENTS = (
    "alter table outlast.job add column events_from timestamptz",
    """alter table outlast.job add constraint job_events_from_check check (
      events_from >= '1970-01-01 00:00:00+00' and events_from < '10000-01-01 00:00:00+00') not valid""",
)


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(in_schema(statement))


def downgrade() -> None:
    op.execute(in_schema("alter table outlast.job drop column events_from"))
