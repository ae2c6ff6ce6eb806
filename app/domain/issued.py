"""What API keys and webhooks have in common, as both are issued with a secret: a label, and a time of two secrets.

Called by `api_key`, `webhook`, and whoever takes these from outside.
"""

from __future__ import annotations

from datetime import timedelta

from .errors import PreconditionFailed, RequestInvalid
from .text import is_printable

MAX_LABEL_CHARS = 100
# How long a secret that was replaced goes on being taken, or signing, if nobody says.
DEFAULT_OVERLAP = timedelta(days=1)
MOST_OVERLAP = timedelta(days=90)
# For requests, which count milliseconds.
MOST_OVERLAP_MS = round(MOST_OVERLAP.total_seconds() * 1000)


def check_label(label: str, *, fix: str) -> None:
    """Raise `REQUEST_INVALID` for a label that cannot be shown on one line; `fix` says what to name."""
    if not is_printable(label, MAX_LABEL_CHARS):
        raise unfit("label", f"the label is not 1 to {MAX_LABEL_CHARS} printable characters", fix)


def check_overlap(overlap: timedelta) -> None:
    """Raise `REQUEST_INVALID` for a time of two secrets that is negative or does not end."""
    if not timedelta(0) <= overlap <= MOST_OVERLAP:
        raise unfit("overlap_ms", f"an overlap is between 0 and {MOST_OVERLAP.days} days", "give a time in between")


def turned(whose: str, secret: str) -> PreconditionFailed:
    """Give the refusal of a rotation that was asked for before another one took place."""
    return PreconditionFailed(
        f"{whose} has a new secret by now, {secret}; nothing was done",
        fix="look at it again; rotate once more only when the secret before that is used nowhere: it ends at once",
    )


def unfit(field: str, what: str, fix: str) -> RequestInvalid:
    """Give the refusal of a field of a body."""
    return RequestInvalid(what, fix=fix, errors=[{"pointer": f"/{field}", "detail": what, "in": "body"}])
