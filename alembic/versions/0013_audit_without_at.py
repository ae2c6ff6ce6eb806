"""The audit without an index of its times: the purge walks its rows in the order of their numbers, as readers do.

Each action had to keep it up, and nothing read it any more.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    op.execute(in_schema("drop index outlast.audit_at"))


def downgrade() -> None:
    op.execute(in_schema('create index audit_at on outlast.audit("at")'))
