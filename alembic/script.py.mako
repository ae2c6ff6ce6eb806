"""${message}

Revision ${up_revision}, after ${down_revision | comma,n}. Revision ids are numbers of four digits that sort as they
follow each other; see `drivers/postgres/migrations.py`.
"""

from __future__ import annotations

from alembic import context, op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    schema = context.config.attributes["schema"]
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    schema = context.config.attributes["schema"]
    ${downgrades if downgrades else "pass"}
