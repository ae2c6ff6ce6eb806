"""Claims are found by job id alone.

An entry by worker was written for every claim, and read once a lease. What runs in the whole fleet is little: who asks
for one worker's claims reads all of them.
"""

from __future__ import annotations

import re

from alembic import context, op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def in_schema(sql: str) -> str:
    schema: str = context.config.attributes["schema"]
    return re.sub(r"\boutlast\.", f'"{schema}".', sql)


def upgrade() -> None:
    op.execute(in_schema("drop index outlast.running_worker"))


def downgrade() -> None:
    op.execute(in_schema("create index running_worker on outlast.running(worker)"))
