"""The check of the wall between tenants: the role that reads for callers of one tenant, and what holds it back."""

from __future__ import annotations

from ...domain.vitals import ServerVitals
from .finding import Check, Examined, Finding, Level, of_server, ok


def _wall(_examined: Examined, server: ServerVitals) -> Finding:
    wall = server.wall
    if wall is None:
        return Finding(level=Level.SKIP, text="not looked at before the schema is migrated")
    facts = {"role": wall.role, "gaps": list(wall.gaps)}
    if wall.gaps:
        return Finding(
            level=Level.FAIL,
            text=f"the wall between tenants has gaps: {'; '.join(wall.gaps)}",
            facts=facts,
            fix="let an administrator close them, and restart the API",
            commands=wall.statements,
        )
    if not (wall.is_made and wall.may_be_taken):
        what = f"may not be taken by {server.role}" if wall.is_made else "is not there"
        return Finding(
            level=Level.WARN,
            text=f"the role {wall.role} {what}: what callers of one tenant read is held back by the statements alone",
            facts=facts,
            fix="let an administrator finish it, and restart the API",
            commands=wall.statements,
        )
    return ok(f"callers of one tenant read as {wall.role}, which row security holds back", **facts)


WALL_CHECKS = (
    Check(
        code="tenant_wall",
        title="Tenants are walled off",
        when="a policy or row security is off, or its role may do more or less (fails); the role is not there",
        judge=of_server(_wall),
    ),
)
