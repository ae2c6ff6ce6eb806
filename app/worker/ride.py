"""A claim on its way: what was asked for, under which lease, and since when.

Either the claim loop's own call or one that rides along with a settle; of both together there is at most one at a time.
Made by the claim loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..drivers.protocol import ClaimRequest
from .lease import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Ride:
    """One claim. `sent` is the monotonic reading before it was sent."""

    request: ClaimRequest
    lease: Lease
    sent: float
