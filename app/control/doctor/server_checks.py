"""Checks of what lies between a process and its server, and of how the server is kept: poolers, wake-ups, vacuum."""

from __future__ import annotations

from datetime import timedelta

from ...domain.vitals import Holder, HolderKind, ServerVitals
from .finding import Check, Examined, Finding, Level, of_server, ok, quoted

# Beside the pool of a process: its heartbeat, what listens, and what notifies.
BESIDE_THE_POOL = 3
# A worker that claims, settles, hands back and maintains at once needs so many.
_LEAST_POOL = 4
_STATEMENT = timedelta(seconds=15)
_LOCK = timedelta(seconds=5)
_IDLE = timedelta(seconds=10)
_OF_STANDBY = (
    "; for a slot whose standby is there, end the long queries on the standby, or set hot_standby_feedback to off there"
)
_MILLISECOND = timedelta(milliseconds=1)


def _pooler(_examined: Examined, server: ServerVitals) -> Finding:
    if server.pooled is None:
        return ok("connections reach the server itself", pooled=False)
    facts = {"pooled": True, "keeps_statements": server.pooled.keeps_statements}
    if server.pooled.keeps_statements:
        return ok("connections go through a pooler, with prepared statements", **facts)
    return Finding(
        level=Level.WARN,
        text="connections go through a pooler that looks after no prepared statements: each is parsed anew",
        facts=facts,
        fix="use PgBouncer 1.21 or newer with prepared statements; one in session mode only needs"
        " ?prepared_statement_cache_size=100 in OUTLAST_DATABASE_URL",
        commands=("max_prepared_statements = 200",),
    )


def _session_settings(examined: Examined, server: ServerVitals) -> Finding:
    if not server.missing:
        return ok("limits and planner settings of our sessions are in force")
    limits = _limits(examined.surroundings.lease)
    prefix = f'alter role "{server.role}" in database "{server.database}" set'
    return Finding(
        level=Level.WARN,
        text=f"not in force at the server: {', '.join(server.missing)}; a pooler drops what a session sends as it"
        " begins",
        facts={"missing": list(server.missing)},
        fix="give them to the role, and let the pooler begin new sessions (RECONNECT in PgBouncer's console)",
        commands=tuple(f"{prefix} {name} = {limits.get(name, 'off')}" for name in server.missing),
    )


def _limits(lease: timedelta) -> dict[str, str]:
    """Give the limits that a session without a pooler has: a frozen one keeps its locks no longer than its lease."""
    idle = min(_IDLE, lease)
    limits = {
        "statement_timeout": _STATEMENT,
        "lock_timeout": min(_LOCK, idle / 2),
        "idle_in_transaction_session_timeout": idle,
    }
    return {name: _written(limit) for name, limit in limits.items()}


def _written(limit: timedelta) -> str:
    seconds = limit.total_seconds()
    return f"'{seconds:.0f}s'" if seconds.is_integer() else f"'{limit // _MILLISECOND}ms'"


def _wakeups(examined: Examined, server: ServerVitals) -> Finding:
    if examined.heard is not None:
        took = examined.heard // _MILLISECOND
        return ok(f"a wake-up was heard, {took} ms after listening was asked for", took_ms=took)
    if server.pooled is not None:
        return Finding(
            level=Level.WARN,
            text="no wake-up is heard through the pooler: workers look for work every second instead",
            facts={"pooled": True},
            fix="set OUTLAST_LISTEN_URL to an address of the same database that leads past the pooler",
            commands=("OUTLAST_LISTEN_URL=postgresql://user@host:5432/database",),
        )
    return Finding(
        level=Level.FAIL,
        text="a wake-up was sent and not heard: workers look for work every second instead",
        facts={"pooled": False},
        fix="let OUTLAST_LISTEN_URL lead to the database of OUTLAST_DATABASE_URL, or leave it out where there is no"
        " pooler",
    )


def _connections(examined: Examined, server: ServerVitals) -> Finding:
    pool, processes = examined.surroundings.pool_size, max(1, len(examined.workers))
    one = pool + BESIDE_THE_POOL
    facts = {
        "available": server.available,
        "in_use": server.connections,
        "per_process": one,
        "processes": processes,
        "needed": one * processes,
    }
    sums = (
        f"{processes} worker processes of ({pool} + {BESIDE_THE_POOL})"
        if processes > 1
        else f"{pool} + {BESIDE_THE_POOL}"
    )
    if server.pooled is not None and one <= server.available:
        return ok("a pooler shares the server's connections; its own sizes count", **facts)
    if one * processes <= server.available:
        return ok(f"{sums} of {server.available} connections; {server.connections} are open", **facts)
    fits = server.available // processes - BESIDE_THE_POOL
    if fits >= _LEAST_POOL:
        fix, commands = "make the pools smaller; or raise max_connections", (f"OUTLAST_POOL_SIZE={fits}",)
    else:
        fix = "raise max_connections and restart the server; or put a pooler between"
        commands = (f"alter system set max_connections = {one * processes + 20}",)
    return Finding(
        level=Level.FAIL if one > server.available else Level.WARN,
        text=f"{sums} = {one * processes} connections are more than the {server.available} that the server has for us",
        facts=facts,
        fix=fix,
        commands=commands,
    )


def _old_snapshots(examined: Examined, server: ServerVitals) -> Finding:
    limits = examined.limits
    old = [
        holder
        for holder in server.holders
        if holder.xids >= limits.holder_xids or (holder.age is not None and holder.age >= limits.holder_age)
    ]
    if not old:
        youngest = "nobody" if not server.holders else f"the oldest is {_aged(server.holders[0])}"
        return ok(f"nobody has kept dead rows from vacuum for long ({youngest})", holders=len(server.holders))
    first = old[0]
    return Finding(
        level=Level.WARN,
        text=f"dead rows cannot be vacuumed away since {_holder(first)} holds an old snapshot"
        + (f", and {len(old) - 1} more" if len(old) > 1 else ""),
        facts={
            "holders": [
                {
                    "kind": holder.kind,
                    "name": holder.name,
                    "application": holder.application,
                    "age_ms": None if holder.age is None else holder.age // _MILLISECOND,
                    "xids": holder.xids,
                }
                for holder in old
            ]
        },
        fix="let it end, or end it; what it has not committed is undone"
        + (_OF_STANDBY if any(map(_is_read, old)) else ""),
        commands=tuple(_end(holder) for holder in old if not _is_read(holder)),
    )


def _slots(examined: Examined, server: ServerVitals) -> Finding:
    large = [slot for slot in server.slots if slot.kept_bytes >= examined.limits.slot_bytes]
    if not large:
        return ok("no replication slot keeps WAL that nobody reads", unread=len(server.slots))
    return Finding(
        level=Level.WARN,
        text="WAL is kept for replication slots that nobody reads, until the disk is full: "
        + ", ".join(f"{slot.name} {slot.kept_bytes >> 20} MiB" for slot in large),
        facts={"slots": [{"name": slot.name, "kept_bytes": slot.kept_bytes} for slot in large]},
        fix="let its reader come back, or drop it",
        commands=tuple(f"select pg_drop_replication_slot({quoted(slot.name)})" for slot in large),
    )


def _vacuum(examined: Examined, server: ServerVitals) -> Finding:
    off = [name for name in ("autovacuum", "track_counts") if server.settings.get(name) == "off"]
    if off:
        return Finding(
            level=Level.FAIL,
            text=f"{' and '.join(off)} {'is' if len(off) == 1 else 'are'} off: tables grow without end",
            facts={"off": off},
            fix="switch it on and reload the server",
            commands=(*(f"alter system set {name} = on" for name in off), "select pg_reload_conf()"),
        )
    left = [table for table in server.tables if not table.is_vacuumed]
    if left:
        return Finding(
            level=Level.FAIL,
            text=f"autovacuum is off for {', '.join(table.name for table in left)}",
            facts={"tables": [table.name for table in left]},
            fix="let autovacuum clean them",
            commands=tuple(
                f'alter table "{server.schema}"."{table.name}" reset (autovacuum_enabled)' for table in left
            ),
        )
    dead = [table for table in server.tables if table.dead >= examined.limits.dead_rows and table.dead > table.live]
    if dead:
        return Finding(
            level=Level.WARN,
            text="dead rows pile up: " + ", ".join(f"{table.dead:,} in {table.name}" for table in dead),
            facts={"tables": [{"name": table.name, "dead": table.dead, "live": table.live} for table in dead]},
            fix="vacuum them; if that removes nothing, somebody holds an old snapshot (`old_snapshots`)",
            commands=tuple(f'vacuum "{server.schema}"."{table.name}"' for table in dead),
        )
    most = max((table.dead for table in server.tables), default=0)
    return ok(f"tables are vacuumed; at most {most:,} dead rows in one", dead_rows=most)


def _indexes(_examined: Examined, server: ServerVitals) -> Finding:
    if not server.indexes:
        return ok("all indexes are there and valid")
    return Finding(
        level=Level.FAIL,
        text="; ".join(f"the index {index.name} is {index.trouble}" for index in server.indexes),
        facts={"indexes": [{"name": index.name, "trouble": index.trouble} for index in server.indexes]},
        fix="make them, which locks out writers of the table meanwhile; `concurrently` after `index` does not",
        commands=tuple(index.statement for index in server.indexes),
    )


def _aged(holder: Holder) -> str:
    return f"{holder.xids:,} transactions old" if holder.age is None else f"{holder.age.total_seconds():.0f} s old"


def _holder(holder: Holder) -> str:
    named = {
        HolderKind.TRANSACTION: f"the session {holder.name} ({holder.application or 'no name'})",
        HolderKind.PREPARED: f"the prepared transaction {holder.name!r}",
        HolderKind.SLOT: f"the replication slot {holder.name!r}"
        + (f" of {holder.application}" if _is_read(holder) else ""),
    }
    return f"{named[holder.kind]}, {_aged(holder)},"


def _is_read(holder: Holder) -> bool:
    """Say whether it is a slot whose standby is there, and keeps what its own readers need: it cannot be dropped."""
    return holder.kind is HolderKind.SLOT and holder.application is not None


def _end(holder: Holder) -> str:
    match holder.kind:
        case HolderKind.TRANSACTION:
            return f"select pg_terminate_backend({holder.name})"
        case HolderKind.PREPARED:
            return f"rollback prepared {quoted(holder.name)}"
        case HolderKind.SLOT:
            return f"select pg_drop_replication_slot({quoted(holder.name)})"


SERVER_CHECKS = (
    Check(
        code="pooler",
        title="What connections go through",
        when="a pooler looks after no prepared statements",
        judge=of_server(_pooler),
    ),
    Check(
        code="session_settings",
        title="Limits of our sessions are in force",
        when="a pooler drops them and the role has none",
        judge=of_server(_session_settings),
    ),
    Check(
        code="wakeups",
        title="NOTIFY is heard",
        when="nothing is heard, so that workers poll",
        judge=of_server(_wakeups),
    ),
    Check(
        code="connections",
        title="Connections suffice",
        when="the pools of all worker processes are more than `max_connections` leaves",
        judge=of_server(_connections),
    ),
    Check(
        code="old_snapshots",
        title="Nobody holds vacuum back",
        when="a transaction, a prepared one or a slot holds a snapshot for 10 minutes or a million transactions",
        judge=of_server(_old_snapshots),
    ),
    Check(
        code="replication_slots",
        title="No slot is left behind",
        when="one that nobody reads keeps 1 GiB of WAL",
        judge=of_server(_slots),
    ),
    Check(
        code="vacuum",
        title="Tables are vacuumed",
        when="autovacuum is off for all or for a table; 200,000 dead rows outnumber the live ones",
        judge=of_server(_vacuum),
    ),
    Check(
        code="indexes",
        title="Indexes are valid",
        when="one is missing or not valid",
        judge=of_server(_indexes),
    ),
)
