"""Checks of the store: it answers, is new enough, has our schema, can be written to, and keeps what it committed."""

from __future__ import annotations

from datetime import timedelta

from ...domain.vitals import ServerVitals
from .finding import Check, Examined, Finding, Level, of_server, ok, skip

_OLDEST = 150_000
_MILLISECOND = timedelta(milliseconds=1)


def _reachable(examined: Examined) -> Finding:
    if examined.error is not None:
        return Finding(level=Level.FAIL, text=examined.error.cause, fix=examined.error.fix)
    assert examined.vitals is not None, "it answered or it did not"  # noqa: S101 - see above
    took = examined.took // _MILLISECOND
    if not examined.vitals.is_durable:
        return Finding(
            level=Level.WARN,
            text=f"the {examined.vitals.store} store answers; its jobs end with its process",
            facts={"store": examined.vitals.store, "took_ms": took},
            fix="set OUTLAST_DATABASE_URL to a postgresql:// address for jobs that matter",
        )
    return ok(f"answered in {took} ms", store=examined.vitals.store, took_ms=took)


def _version(_examined: Examined, server: ServerVitals) -> Finding:
    shown = f"PostgreSQL {server.version // 10_000}.{server.version % 10_000}"
    if server.version >= _OLDEST:
        return ok(shown, version=server.version)
    return Finding(
        level=Level.FAIL,
        text=f"the server is {shown}",
        facts={"version": server.version},
        fix="point OUTLAST_DATABASE_URL at PostgreSQL 15 or newer",
    )


def _privileges(_examined: Examined, server: ServerVitals) -> Finding:
    if not server.denied:
        return ok(f"{server.role!r} may do in the schema {server.schema!r} what it has to", role=server.role)
    return Finding(
        level=Level.FAIL,
        text=f"the role {server.role!r} may not do in the schema {server.schema!r} what every process does",
        facts={"role": server.role, "lacks": len(server.denied)},
        fix="let the schema's owner grant it",
        commands=server.denied,
    )


def _schema(_examined: Examined, server: ServerVitals) -> Finding:
    if server.denied:
        return skip(f"the role {server.role!r} may not look into it")
    facts = {"schema": server.schema, "revision": server.revision, "required": server.required}
    if server.revision is None or server.revision < server.required:
        return Finding(
            level=Level.FAIL,
            text=f"the schema {server.schema!r} is at {server.revision or 'nothing'}, and this code needs"
            f" {server.required}",
            facts=facts,
            fix="bring it up to date; old and new code both run on the newer one",
            commands=("outlast migrate up",),
        )
    newer = "" if server.revision == server.required else f", newer than this code's {server.required}"
    return ok(f"the schema {server.schema!r} is at {server.revision}{newer}", **facts)


def _writable(_examined: Examined, server: ServerVitals) -> Finding:
    if server.is_standby:
        return Finding(
            level=Level.FAIL,
            text="the server is a standby: nothing can be written to it",
            facts={"standby": True},
            fix="point OUTLAST_DATABASE_URL at the primary (`target_session_attrs=read-write` chooses among several)",
        )
    if server.is_read_only:
        return Finding(
            level=Level.FAIL,
            text=f"transactions of the role {server.role!r} in {server.database!r} are read-only",
            facts={"standby": False, "role": server.role, "database": server.database},
            fix="let the role write here; sessions that begin afterwards may",
            # The first is for the session that types the second, which may be read-only as well.
            commands=(
                "set default_transaction_read_only = off",
                _for_role(server, "default_transaction_read_only = off"),
            ),
        )
    return ok(f"{server.role!r} may write in {server.database!r}", standby=False)


def _durability(_examined: Examined, server: ServerVitals) -> Finding:
    off = [name for name in ("fsync", "full_page_writes") if server.settings.get(name) == "off"]
    if off:
        return Finding(
            level=Level.FAIL,
            text=f"{' and '.join(off)} {'is' if len(off) == 1 else 'are'} off: a crash of the machine can lose or break"
            " every job",
            facts={"off": off},
            fix="switch on what is off and reload the server; nothing has to be restarted",
            commands=(*(f"alter system set {name} = on" for name in off), "select pg_reload_conf()"),
        )
    if server.settings.get("synchronous_commit") == "off":
        return Finding(
            level=Level.FAIL,
            text="synchronous_commit is off: a crash of the server forgets claims it has answered, and runs jobs again",
            facts={"off": ["synchronous_commit"]},
            fix="switch it on for the role; sessions that begin afterwards have it",
            commands=(_for_role(server, "synchronous_commit = on"),),
        )
    return ok("what was committed is on disk", synchronous_commit=server.settings.get("synchronous_commit"))


def _clock(examined: Examined, server: ServerVitals) -> Finding:
    if not server.is_clock_true:
        clock = "returns timestamptz language sql stable parallel safe as 'select statement_timestamp()'"
        return Finding(
            level=Level.FAIL,
            text=f"the clock of the schema {server.schema!r} is not the server's: it was stopped, as tests do",
            fix="give it back its clock",
            commands=(f'create or replace function "{server.schema}".clock() {clock}',),
        )
    if examined.vitals is None:
        return skip("the store did not answer")
    skew = examined.vitals.at - examined.now
    shown = abs(skew) - min(abs(skew), examined.took)  # what the answer's way may explain is not said to be skew
    facts = {"skew_ms": skew // _MILLISECOND}
    if shown < examined.limits.skew_warn:
        return ok(f"this machine's clock and the server's differ by {abs(skew) // _MILLISECOND} ms", **facts)
    ahead = "ahead of" if skew > timedelta() else "behind"
    return Finding(
        level=Level.FAIL if shown >= examined.limits.skew_fail else Level.WARN,
        text=f"the server's clock is {abs(skew).total_seconds():.1f} s {ahead} this machine's: due times and leases are"
        " the server's, what you send as `run_at` is yours",
        facts=facts,
        fix="set both by NTP, the one that is off first",
        commands=("chronyc makestep",),
    )


def _for_role(server: ServerVitals, setting: str) -> str:
    return f'alter role "{server.role}" in database "{server.database}" set {setting}'


STORE_CHECKS = (
    Check(code="database", title="The store answers", when="it does not; it is volatile", judge=_reachable),
    Check(
        code="server_version",
        title="The server is new enough",
        when="it is older than PostgreSQL 15",
        judge=of_server(_version),
    ),
    Check(
        code="privileges",
        title="The role may do its work",
        when="it lacks a right to the schema, its tables or sequences",
        judge=of_server(_privileges),
    ),
    Check(code="schema", title="Migrations are applied", when="the schema is older", judge=of_server(_schema)),
    Check(
        code="writable",
        title="The database can be written to",
        when="it is a standby, or the role may only read",
        judge=of_server(_writable),
    ),
    Check(
        code="durability",
        title="Commits are on disk",
        when="`fsync`, `full_page_writes` or `synchronous_commit` is off",
        judge=of_server(_durability),
    ),
    Check(
        code="clock",
        title="Clocks agree",
        when="they differ by 2 s (fails from 30 s on); the schema's clock was stopped",
        judge=of_server(_clock),
    ),
)
