"""The codec that comes along: AES-256-GCM, each value under a key of its own, derived from a master key by a salt.

So there is no number of values after which a master key is worn out. A stored value names its master key by a trace
that says nothing about it; older keys open what they have sealed. Its size is that of the value and `OVERHEAD` bytes.
Needs the extra `encryption`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Sequence

from ...domain.errors import PayloadUnreadable, SettingsInvalid
from ...domain.sealed import CHANGED_FIX

_ID, _SALT, _TAG, _KEY = 4, 24, 16, 32
OVERHEAD = _ID + _SALT + _TAG
FILE = "OUTLAST_PAYLOAD_KEY_FILE"
ONE_PER_LINE = "write one key per line, the newest first, each made with `openssl rand -hex 32`"
_FIX = f"add that key to {FILE}, below the newest, and start the process again"


class AesGcmCodec:
    """Encrypts with the newest of several keys and decrypts with any. `repr` never shows them."""

    def __init__(self, keys: Sequence[bytes], *, new_salt: Callable[[int], bytes] = os.urandom) -> None:
        """Take keys of 32 bytes each, the newest first.

        Raises:
            SettingsInvalid: there is none, one is not of 32 bytes, or `cryptography` is not installed.
        """
        if not keys or any(len(key) != _KEY for key in keys):
            raise SettingsInvalid(f"payloads are encrypted with keys of {_KEY} bytes, at least one", fix=ONE_PER_LINE)
        try:
            from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an optional extra
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - same
        except ModuleNotFoundError as exc:
            raise SettingsInvalid(
                "payloads are to be encrypted, and the package cryptography is not installed",
                fix="install outlast[encryption]",
            ) from exc
        self._cipher, self._invalid, self._new_salt = AESGCM, InvalidTag, new_salt
        self._keys = {_id_of(key): key for key in keys}
        self._newest = _id_of(keys[0])

    def __repr__(self) -> str:
        """Name the newest key by its trace alone."""
        return f"AesGcmCodec({self._newest.hex()})"

    def encode(self, plain: bytes, context: bytes) -> bytes:
        """Give the trace of the newest key, a new salt, and the value under the key that both give."""
        salt = self._new_salt(_SALT)
        key, nonce = _derived(self._keys[self._newest], salt)
        head = self._newest + salt
        return head + self._cipher(key).encrypt(nonce, plain, head + context)

    def decode(self, stored: bytes, context: bytes) -> bytes:
        """Give the value back.

        Raises:
            PayloadUnreadable: its key is not here, it was changed, or it is not of this context.
        """
        head, sealed = stored[: _ID + _SALT], stored[_ID + _SALT :]
        master = self._keys.get(head[:_ID])
        if len(stored) < OVERHEAD:
            raise PayloadUnreadable("it is encrypted, and cut short in the database", fix=CHANGED_FIX)
        if master is None:
            raise PayloadUnreadable(
                f"it is encrypted with the key {head[:_ID].hex()}, which this process does not have", fix=_FIX
            )
        key, nonce = _derived(master, head[_ID:])
        try:
            return self._cipher(key).decrypt(nonce, sealed, head + context)
        except self._invalid as exc:
            raise PayloadUnreadable(
                "it is encrypted, and was changed in the database or moved from another place", fix=CHANGED_FIX
            ) from exc


def codec_of_lines(lines: Sequence[str]) -> AesGcmCodec:
    """Give the codec of a file's lines, each a key in hexadecimal.

    Raises:
        SettingsInvalid: there is none, or one is no key.
    """
    try:
        keys = [bytes.fromhex(line) for line in lines]
    except ValueError as exc:
        raise SettingsInvalid(f"{FILE} holds a line that is not hexadecimal", fix=ONE_PER_LINE) from exc
    if not keys or any(len(key) != _KEY for key in keys):
        raise SettingsInvalid(f"{FILE} has to hold keys of {2 * _KEY} hexadecimal digits each", fix=ONE_PER_LINE)
    return AesGcmCodec(keys)


def _id_of(key: bytes) -> bytes:
    return hmac.new(key, b"outlast payload key", hashlib.sha256).digest()[:_ID]


def _derived(master: bytes, salt: bytes) -> tuple[bytes, bytes]:
    made = hmac.digest(master, b"outlast payload value\0" + salt, "sha512")
    return made[:_KEY], made[_KEY : _KEY + 12]
