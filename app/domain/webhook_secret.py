"""The secrets of webhooks: derived from a master key when they are needed, kept nowhere.

A secret is HMAC-SHA-256 of a webhook's id and a number under the master key. So whoever reads the database finds none,
giving a webhook a new one is counting its number on, and a process without the master key can neither show nor use
them. A master key is named by its own trace, which says nothing about it. Called by `control` and `webhooks`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence

from .errors import CallbackRefused, SettingsInvalid
from .webhook import SecretRef, WebhookId

SHORTEST_MASTER = 32
_ONE_PER_LINE = "write one key per line, the newest first, each made with `openssl rand -hex 32`"


class Masters:
    """The master keys of a process, the newest first. `repr` never shows them."""

    def __init__(self, keys: Sequence[str]) -> None:
        """Take the lines of a file.

        Raises:
            SettingsInvalid: there is none, or one is short.
        """
        if not keys:
            raise SettingsInvalid("OUTLAST_CALLBACK_KEY_FILE holds no key", fix=_ONE_PER_LINE)
        if any(len(key) < SHORTEST_MASTER for key in keys):
            raise SettingsInvalid(
                f"OUTLAST_CALLBACK_KEY_FILE holds a key of fewer than {SHORTEST_MASTER} characters", fix=_ONE_PER_LINE
            )
        self._by_name = {_name_of(key): key.encode() for key in keys}
        self.newest = _name_of(keys[0])

    def __repr__(self) -> str:
        """Name the newest key alone."""
        return f"Masters({self.newest})"

    def secret(self, webhook: WebhookId, ref: SecretRef) -> str:
        """Give a secret of a webhook, as Standard Webhooks writes it.

        Raises:
            CallbackRefused: its master key is not among these.
        """
        master = self._by_name.get(ref.master)
        if master is None:
            raise CallbackRefused(
                f"the secret of webhook {webhook} is derived from the master key {ref.master}, which is not here",
                fix="add that key to OUTLAST_CALLBACK_KEY_FILE, below the newest, or rotate the webhook's secret",
            )
        derived = hmac.new(master, f"outlast webhook\0{webhook}\0{ref.number}".encode(), hashlib.sha256).digest()
        return f"whsec_{base64.b64encode(derived).decode()}"


def _name_of(key: str) -> str:
    return hmac.new(key.encode(), b"outlast webhook master", hashlib.sha256).hexdigest()[:12]
