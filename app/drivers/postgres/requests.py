"""Requests with a key of their own: claimed, marked in the commit of what they do, answered, forgotten.

The row of a request is the last that a transaction locks. A mark that finds no row of its holder raises, so that the
effect is undone: somebody else tries the request by now.
"""

from __future__ import annotations

import json

from ...domain.request_claim import (
    REQUEST_KEPT,
    REQUEST_LEASE,
    Effect,
    KeptAnswer,
    NewRequest,
    RequestClaim,
    in_flight,
    key_reused,
)
from .database import Database, Raw
from .outbox_rows import count_of

# Each repetition means that the first request was refused and forgotten in between.
_TRIES = 5

# A row that is older than its day begins anew. One whose effect is marked has only to be answered: any may.
_CLAIM = """
insert into outlast.request as r (id, holder, fingerprint, until_at, created_at)
values ($1, $2, $3, outlast.clock() + $4::interval, outlast.clock())
on conflict (id) do update set
  holder = excluded.holder, fingerprint = excluded.fingerprint, until_at = excluded.until_at,
  created_at = case when r.created_at <= outlast.clock() - $5::interval then excluded.created_at else r.created_at end,
  effect = case when r.created_at <= outlast.clock() - $5::interval then null else r.effect end,
  status = null, headers = null, body = null
where r.created_at <= outlast.clock() - $5::interval
  or (r.fingerprint = excluded.fingerprint and r.status is null
    and (r.effect is not null or r.holder = excluded.holder or r.until_at <= outlast.clock()))
returning effect"""

_FIND = "select fingerprint = $2 as is_same, status, headers, body from outlast.request where id = $1"

# The same effect once more is the same commit, repeated because its reply was lost.
_MARK = """
update outlast.request set effect = $3 where id = $1 and holder = $2 and (effect is null or effect = $3)"""

_ANSWER = """
update outlast.request set status = $3, headers = $4, body = $5
where id = $1 and status is null and (holder = $2 or effect is not null)"""

_RELEASE = "delete from outlast.request where id = $1 and holder = $2 and effect is null and status is null"


async def claim_request(db: Database, request: NewRequest) -> RequestClaim | KeptAnswer:
    """Give the right to do a request, or its answer.

    Raises:
        IdempotencyKeyReused: the key came with another request.
        IdempotencyInFlight: somebody else holds the claim.
    """

    async def once(conn: Raw) -> RequestClaim | KeptAnswer | None:
        binds = request.id, request.holder, request.fingerprint, REQUEST_LEASE, REQUEST_KEPT
        claimed = await conn.fetchrow(db.in_schema(_CLAIM), *binds)
        if claimed is not None:
            text = claimed["effect"]
            effect = None if text is None else Effect.from_text(text)
            return RequestClaim(id=request.id, holder=request.holder, effect=effect)
        row = await conn.fetchrow(db.in_schema(_FIND), request.id, request.fingerprint)
        if row is None:
            return None
        if not row["is_same"]:
            raise key_reused()
        if row["status"] is None:
            raise in_flight()
        return KeptAnswer(status=row["status"], headers=json.loads(row["headers"]), body=row["body"])

    for _ in range(_TRIES):
        found = await db.run(once)
        if found is not None:
            return found
    raise in_flight()


async def mark(db: Database, conn: Raw, claim: RequestClaim | None, effect: Effect) -> None:
    """Mark what a request does in the transaction that does it; without a claim nothing.

    Raises:
        IdempotencyInFlight: the claim is somebody else's by now; the transaction must not commit.
    """
    if claim is None:
        return
    text = effect.to_text()
    if not count_of(await conn.execute(db.in_schema(_MARK), claim.id, claim.holder, text)):
        raise in_flight()


async def answer_request(db: Database, claim: RequestClaim, answer: KeptAnswer) -> None:
    """Keep the answer of a request."""
    binds = claim.id, claim.holder, answer.status, json.dumps(dict(answer.headers)), answer.body
    await db.run(lambda conn: conn.execute(db.in_schema(_ANSWER), *binds))


async def release_request(db: Database, claim: RequestClaim) -> None:
    """Forget a request that was refused."""
    await db.run(lambda conn: conn.execute(db.in_schema(_RELEASE), claim.id, claim.holder))
