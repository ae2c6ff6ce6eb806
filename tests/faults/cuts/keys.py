"""Operations on API keys: who makes or changes one and hears nothing repeats it, and there is one key and one row."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from app.domain.api_key import NewKey, Scope, new_id, new_token
from app.domain.audit import Action, AuditEntry, Target
from app.drivers.postgres.api_keys import PostgresKeys
from tests.faults.cuts.cell import Operation


class Create(Operation):
    name = "create an API key"
    action = Action.KEY_CREATE

    async def arrange(self) -> None:
        await self.fetch("truncate outlast.api_key, outlast.audit")
        key_id = new_id()
        self.secret = new_token(key_id)[1]
        self.key = NewKey(
            id=key_id,
            secret=self.secret,
            label="ci",
            tenant="acme",
            scopes=frozenset(Scope),
            created_by="ada",
        )
        self.audit = AuditEntry(
            id=uuid4(), actor="ada", action=self.action, target_kind=Target.KEY, target=key_id, tenant="acme"
        )

    async def call(self) -> Any:
        return await self.store().create(self.key, audit=self.audit)

    async def check(self, answer: Any) -> None:
        (known,) = await self.store(straight=True).known()
        assert (known.identity.key_id, known.digests[0]) == (self.key.id, self.secret.digest)
        assert await self.count("audit") == 1

    def store(self, *, straight: bool = False) -> PostgresKeys:
        """Give the keys past the blade, or around it."""
        found: Any = self.straight if straight else self.driver
        keys: PostgresKeys = found.api_keys
        return keys


class _Made(Create):
    """There is a key already."""

    async def arrange(self) -> None:
        await super().arrange()
        await self.store(straight=True).create(self.key)
        self.first = self.secret


class Rotate(_Made):
    """Repeated, it does not take the new secret for the one before."""

    name = "rotate an API key"
    action = Action.KEY_ROTATE

    async def arrange(self) -> None:
        await super().arrange()
        self.secret = new_token(self.key.id)[1]

    async def call(self) -> Any:
        return await self.store().rotate(self.key.id, self.secret, overlap=timedelta(hours=1), audit=self.audit)

    async def check(self, answer: Any) -> None:
        await super().check(answer)
        (known,) = await self.store(straight=True).known()
        assert known.digests == (self.secret.digest, self.first.digest)


class Revoke(_Made):
    name = "revoke an API key"
    action = Action.KEY_REVOKE

    async def call(self) -> Any:
        return await self.store().revoke(self.key.id, by="ada", audit=self.audit)

    async def check(self, answer: Any) -> None:
        assert await self.store(straight=True).known() == ()
        assert await self.count("audit") == 1


class Used(_Made):
    name = "note that an API key was used"

    async def call(self) -> Any:
        await self.store().used([self.key.id])

    async def check(self, answer: Any) -> None:
        assert await self.count("api_key", "last_used_at is not null") == 1


class EndSession(Create):
    name = "end a session"

    async def arrange(self) -> None:
        await self.fetch("truncate outlast.ended_session, outlast.audit")
        self.session = uuid4()

    async def call(self) -> Any:
        await self.store().end_session(self.session, lasts=timedelta(hours=1))

    async def check(self, answer: Any) -> None:
        assert await self.store(straight=True).ended_sessions() == {self.session}


OPERATIONS: tuple[type[Operation], ...] = (Create, Rotate, Revoke, Used, EndSession)
