"""The audit behind the wall: of rows without a tenant, callers of one tenant see those about what belongs to nobody.

The policy let every such row through, and the statement alone kept from a tenant what keys for all tenants did to other
things, and who was turned away.
"""

from __future__ import annotations

from alembic import context, op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

OWN = "tenant = current_setting('outlast.tenant', true)"
SHARED = "tenant is null and target_kind in ('queue', 'worker', 'schedule', 'limit', 'store')"


def let_see(rows: str) -> str:
    schema: str = context.config.attributes["schema"]
    return f"alter policy own_tenant on \"{schema}\".audit using (current_user <> '{schema}_api' or ({rows}))"


def upgrade() -> None:
    op.execute(let_see(f"{OWN} or {SHARED}"))


def downgrade() -> None:
    op.execute(let_see(f"tenant is null or {OWN}"))
