"""The check on since when events are for a run, held for all jobs there are.

A step of its own, as it reads the table of jobs: by now its transaction locks out no reader and no writer.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    op.execute(in_schema("alter table outlast.job validate constraint job_events_from_check"))


def downgrade() -> None:
    """Leave it: the step before drops it with its column."""
