"""The job types each worker knows, so that a job whose type nobody knows can be told from one that waits its turn.

A column without a default: adding it rewrites nothing, and workers of the release before, which do not fill it, are
taken to know what they may.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    op.execute(in_schema("alter table outlast.worker add column names text[]"))


def downgrade() -> None:
    op.execute(in_schema("alter table outlast.worker drop column names"))
