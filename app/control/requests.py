"""Requests that carry a key of their own: who claims one, what is kept of its answer.

Says which requests are the same: caller, method, path and key. Called by the HTTP edge alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from uuid import UUID

from uuid_utils.compat import uuid7

from ..domain.request_claim import KeptAnswer, NewRequest, RequestClaim, RequestId
from ..drivers.protocol import JobDriver
from ..steps.repeat import until_known


class RequestControl:
    """The verbs on requests."""

    def __init__(self, driver: JobDriver, *, new_id: Callable[[], UUID] = uuid7) -> None:
        self._driver = driver
        self._new_id = new_id

    async def claim(
        self, key: str, *, owner: str, method: str, path: str, sent: tuple[bytes, ...]
    ) -> RequestClaim | KeptAnswer:
        """Give the right to do a request, or the answer it had; `sent` is what must be the same when it is repeated.

        Raises:
            IdempotencyKeyReused: the key came with something else.
            IdempotencyInFlight: the first request is being done.
        """
        new = NewRequest(
            id=RequestId(_digest(owner.encode(), method.encode(), path.encode(), key.encode())),
            holder=self._new_id(),
            fingerprint=_digest(*sent),
        )
        return await until_known(lambda: self._driver.claim_request(new))

    async def answer(self, claim: RequestClaim, answer: KeptAnswer) -> None:
        """Keep the answer of a request that was done."""
        await until_known(lambda: self._driver.answer_request(claim, answer))

    async def release(self, claim: RequestClaim) -> None:
        """Forget a request that was refused, so that it may be tried again."""
        await self._driver.release_request(claim)


def _digest(*parts: bytes) -> UUID:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return UUID(bytes=digest.digest())
