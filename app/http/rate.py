"""How many requests a caller may send, and how many bytes: buckets for each key, in this process, filled steadily.

Off unless a rate is set. Cancelling is never refused, and neither are the probes: whoever has lost control of what they
send must be able to stop it. The identity is the key's, never an address; pages and the API take from one bucket.
Called by the edge and by the pages, before a body is read.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..domain.errors import RateLimited
from .problems import HEADERS_DETAIL

# Beyond it, buckets that are full again are forgotten; a full one is what a new caller gets.
_MOST_BUCKETS = 10_000
_BURST_SECONDS = 10
_ALWAYS = re.compile(r"/(?:v1|ui)/jobs/[^/]+/cancel|/ui/logout|/metrics|/version|/v1/drain")


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class _Bytes:
    """Bytes by caller: a bucket that may be overdrawn, and holds what ten seconds bring."""

    def __init__(self, per_second: float, monotonic: Callable[[], float]) -> None:
        self._rate = per_second
        self._most = _BURST_SECONDS * per_second
        self._monotonic = monotonic
        self._buckets: dict[str, _Bucket] = {}

    def spend(self, caller: str, size: int) -> None:
        """Take bytes out, more than there are if need be."""
        self._filled(caller).tokens -= size

    def owed_for(self, caller: str) -> float:
        """Give the seconds until nothing is owed any more."""
        return max(0.0, -self._filled(caller).tokens / self._rate) if caller in self._buckets else 0.0

    def _filled(self, caller: str) -> _Bucket:
        now = self._monotonic()
        if caller not in self._buckets:
            if len(self._buckets) >= _MOST_BUCKETS:
                self._buckets = {
                    name: one
                    for name, one in self._buckets.items()
                    if one.tokens + (now - one.at) * self._rate < self._most
                }
            self._buckets[caller] = _Bucket(tokens=self._most, at=now)
        bucket = self._buckets[caller]
        bucket.tokens = min(self._most, bucket.tokens + (now - bucket.at) * self._rate)
        bucket.at = now
        return bucket


class RateLimiter:
    """Counts requests by caller. `per_second` None: nobody is counted. A caller may send `burst` at once."""

    def __init__(
        self,
        per_second: float | None,
        *,
        burst: int | None = None,
        bytes_per_second: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bytes = None if bytes_per_second is None else _Bytes(bytes_per_second, monotonic)
        self._rate = per_second
        self._burst = max(1, math.ceil(2 * (per_second or 0)) if burst is None else burst)
        self._monotonic = monotonic
        self._buckets: dict[str, _Bucket] = {}

    def take(self, caller: str, path: str) -> dict[str, str]:
        """Count a request, and give the headers that say what is left; none where nobody is counted.

        Raises:
            RateLimited: nothing is left, and the request may wait.
        """
        self._check_bytes(caller, path)
        if self._rate is None:
            return {}
        bucket = self._filled(caller, self._rate)
        if bucket.tokens >= 1:
            bucket.tokens -= 1
        elif not _ALWAYS.fullmatch(path):
            wait = max(1, math.ceil((1 - bucket.tokens) / self._rate))
            raise RateLimited(
                f"the key has sent more than {self._rate:g} requests a second",
                fix=f"try again after {wait} s, and send fewer: POST /v1/job-batches takes 1,000 jobs at once",
                **{HEADERS_DETAIL: {**self._headers(bucket, self._rate), "Retry-After": str(wait)}},
            )
        return self._headers(bucket, self._rate)

    def charge(self, caller: str, size: int) -> None:
        """Count bytes of a body that have come. One that was admitted is read to its end: what is too much is owed."""
        if self._bytes is not None and size:
            self._bytes.spend(caller, size)

    def _check_bytes(self, caller: str, path: str) -> None:
        wait = 0.0 if self._bytes is None or _ALWAYS.fullmatch(path) else self._bytes.owed_for(caller)
        if wait > 0:
            seconds = max(1, math.ceil(wait))
            raise RateLimited(
                "the key has sent more bytes than it may for now",
                fix=f"try again after {seconds} s, and send less: a reference instead of the data",
                **{HEADERS_DETAIL: {"Retry-After": str(seconds)}},
            )

    def _filled(self, caller: str, rate: float) -> _Bucket:
        now = self._monotonic()
        bucket = self._buckets.get(caller)
        if bucket is None:
            self._forget_full(now, rate)
            bucket = self._buckets[caller] = _Bucket(tokens=self._burst, at=now)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.at) * rate)
        bucket.at = now
        return bucket

    def _forget_full(self, now: float, rate: float) -> None:
        if len(self._buckets) >= _MOST_BUCKETS:
            kept = {
                name: one for name, one in self._buckets.items() if one.tokens + (now - one.at) * rate < self._burst
            }
            self._buckets = kept

    def _headers(self, bucket: _Bucket, rate: float) -> dict[str, str]:
        """Give the two fields of the IETF's draft: the policy, and what is left until the bucket is full again."""
        full_in = math.ceil((self._burst - bucket.tokens) / rate)
        return {
            "RateLimit-Policy": f'"key";q={self._burst};w={max(1, math.ceil(self._burst / rate))}',
            "RateLimit": f'"key";r={int(bucket.tokens)};t={full_in}',
        }
