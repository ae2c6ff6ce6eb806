"""API keys in PostgreSQL: the table beside the jobs, which holds what can be compared with a secret and no secret.

All keys in force are read at once: no request then costs a look-up, and one with an unknown id costs what one with a
wrong secret costs. Called by `control` through the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from ...domain.api_key import (
    MOST_KEYS,
    KeyId,
    KeyView,
    KnownKey,
    NewKey,
    NewSecret,
    Scope,
    too_many_keys,
    turned_key,
    unknown_key,
)
from ...domain.audit import UNCHANGED, AuditEntry
from ..api_keys import KeyStore
from .audit import audited
from .database import Database, Raw, Row
from .rows import plain

_SCOPES = frozenset(scope.value for scope in Scope)
_IN_FORCE = "k.revoked_at is null and (k.expires_at is null or k.expires_at > outlast.clock())"
_SHOWN = """k.id, k.label, k.tenant, k.scopes, k.queues, k.last4, k.digest, k.created_at, k.created_by, k.rotated_at,
  k.expires_at, k.revoked_at, k.revoked_by, k.last_used_at, k.previous_digest,
  case when k.previous_until > outlast.clock() then k.previous_last4 end as previous_last4,
  case when k.previous_until > outlast.clock() then k.previous_until end as previous_until"""

# How many there may be is asked, not held: two that are made at once may both be the last.
_CREATE = f"""
insert into outlast.api_key(id, label, tenant, scopes, queues, digest, last4, created_by, expires_at)
select $1, $2, $3, $4::text[], $5::text[], $6, $7, $8, $9::timestamptz
where (select count(*) from outlast.api_key k where {_IN_FORCE}) < {MOST_KEYS}
on conflict (id) do nothing"""  # noqa: S608  our own fragments

_ONE = f"""
select {_SHOWN} from outlast.api_key k where k.id = $1 and ($2::text is null or k.tenant = $2)"""  # noqa: S608
_LIST = f"""
select {_SHOWN} from outlast.api_key k where $1::text is null or k.tenant = $1
order by k.created_at desc, k.id desc limit $2"""  # noqa: S608

_REVOKE = """
update outlast.api_key k set revoked_at = outlast.clock(), revoked_by = $3
where k.id = $1 and ($2::text is null or k.tenant = $2) and k.revoked_at is null returning k.id"""

_ROTATE = f"""
update outlast.api_key k
set previous_digest = case when k.digest = $3 then k.previous_digest else k.digest end,
  previous_last4 = case when k.digest = $3 then k.previous_last4 else k.last4 end,
  previous_until = case when k.digest = $3 then k.previous_until else outlast.clock() + $5::interval end,
  rotated_at = case when k.digest = $3 then k.rotated_at else outlast.clock() end, digest = $3, last4 = $4
where k.id = $1 and ($2::text is null or k.tenant = $2) and {_IN_FORCE}
  and ($6::text is null or k.digest = $3 or k.last4 = $6)
returning k.id"""  # noqa: S608

_KNOWN = f"select {_SHOWN} from outlast.api_key k where {_IN_FORCE}"  # noqa: S608

# Nobody waits for a note of use: who holds the row writes one, or ends the key.
_USED = """
update outlast.api_key set last_used_at = outlast.clock() where id = any(array(
  select id from outlast.api_key
  where id = any($1::text[]) and (last_used_at is null or last_used_at <= outlast.clock() - interval '1 minute')
  order by id for update skip locked))"""


# What is remembered long enough goes with the next one.
_END_SESSION = """
with old as (delete from outlast.ended_session where until_at <= outlast.clock() and id <> $1)
insert into outlast.ended_session(id, until_at) values ($1, outlast.clock() + $2::interval) on conflict do nothing"""
_ENDED_SESSIONS = "select id from outlast.ended_session where until_at > outlast.clock()"


class PostgresKeys:
    """A `KeyStore` in PostgreSQL. What each verb does is said by the protocol."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def create(self, key: NewKey, *, audit: AuditEntry | None = None) -> KeyView:
        """Store a new key."""
        binds = (key.id, key.label, key.tenant, sorted(key.scopes), None if key.queues is None else sorted(key.queues))

        async def once(conn: Raw) -> Row | None:
            await conn.execute(
                self._db.in_schema(_CREATE),
                *(*binds, key.secret.digest, key.secret.last4, key.created_by, key.expires_at),
            )
            return await self._row(conn, key.id, None)

        found = await audited(self._db, once, audit, lambda entry, row: entry if row is not None else None)
        if found is None:
            raise too_many_keys()
        return _view(found)

    async def keys(self, *, tenant: str | None = None, limit: int = 1_000) -> tuple[KeyView, ...]:
        """Give keys, the newest first."""
        rows = await self._db.run(lambda conn: conn.fetch(self._db.in_schema(_LIST), tenant, limit))
        return tuple(_view(row) for row in rows)

    async def key(self, key_id: KeyId, *, tenant: str | None = None) -> KeyView | None:
        """Give one key."""
        row = await self._db.run(lambda conn: self._row(conn, key_id, tenant))
        return None if row is None else _view(row)

    async def revoke(
        self, key_id: KeyId, *, by: str, tenant: str | None = None, audit: AuditEntry | None = None
    ) -> KeyView:
        """End a key for good."""

        async def once(conn: Raw) -> tuple[bool, Row]:
            is_new = await conn.fetchval(self._db.in_schema(_REVOKE), key_id, tenant, by) is not None
            return is_new, await self._found(conn, key_id, tenant)

        _, row = await audited(
            self._db, once, audit, lambda entry, answer: entry if answer[0] else entry.came_to(UNCHANGED)
        )
        return _view(row)

    async def rotate(
        self,
        key_id: KeyId,
        secret: NewSecret,
        *,
        overlap: timedelta,
        replaces: str | None = None,
        tenant: str | None = None,
        audit: AuditEntry | None = None,
    ) -> KeyView:
        """Give a key a new secret."""

        async def once(conn: Raw) -> Row:
            binds = (key_id, tenant, secret.digest, secret.last4, overlap, replaces)
            is_done = await conn.fetchval(self._db.in_schema(_ROTATE), *binds) is not None
            row = await self._found(conn, key_id, tenant)
            if is_done:
                return row
            if row["digest"] != secret.digest and replaces not in {None, row["last4"]}:
                raise turned_key(key_id, row["last4"])
            raise unknown_key(key_id)

        return _view(await audited(self._db, once, audit, lambda entry, _: entry))

    async def known(self) -> tuple[KnownKey, ...]:
        """Give every key in force."""
        rows = await self._db.run(lambda conn: conn.fetch(self._db.in_schema(_KNOWN)))
        return tuple(_known(row) for row in rows)

    async def used(self, key_ids: Sequence[KeyId]) -> None:
        """Note that keys were used."""
        await self._db.run(lambda conn: conn.execute(self._db.in_schema(_USED), sorted(set(key_ids))))

    async def end_session(self, session: UUID, *, lasts: timedelta) -> None:
        """Remember that a session has ended."""
        await self._db.run(lambda conn: conn.execute(self._db.in_schema(_END_SESSION), session, lasts))

    async def ended_sessions(self) -> frozenset[UUID]:
        """Give the sessions that have ended."""
        rows = await self._db.run(lambda conn: conn.fetch(self._db.in_schema(_ENDED_SESSIONS)))
        return frozenset(plain(row["id"]) for row in rows)

    async def _row(self, conn: Raw, key_id: KeyId, tenant: str | None) -> Row | None:
        return await conn.fetchrow(self._db.in_schema(_ONE), key_id, tenant)

    async def _found(self, conn: Raw, key_id: KeyId, tenant: str | None) -> Row:
        row = await self._row(conn, key_id, tenant)
        if row is None:
            raise unknown_key(key_id)
        return row


def _known(row: Row) -> KnownKey:
    previous = () if row["previous_until"] is None else (row["previous_digest"],)
    return KnownKey(identity=_view(row).identity, digests=(row["digest"], *previous))


def _view(row: Row) -> KeyView:
    return KeyView(
        id=KeyId(row["id"]),
        label=row["label"],
        tenant=row["tenant"],
        # A scope of a later release opens nothing here.
        scopes=frozenset(Scope(name) for name in row["scopes"] if name in _SCOPES),
        queues=None if row["queues"] is None else frozenset(row["queues"]),
        last4=row["last4"],
        previous_last4=row["previous_last4"],
        previous_until=row["previous_until"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        rotated_at=row["rotated_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        revoked_by=row["revoked_by"],
        last_used_at=row["last_used_at"],
    )


_: type[KeyStore] = PostgresKeys
