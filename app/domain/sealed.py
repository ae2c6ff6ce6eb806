"""Texts that lie encrypted in a store: how they are told from plain ones, and what is said of one nobody can read.

A sealed text begins as no JSON text does, so that a store may hold both, and whoever takes one for JSON fails. Each is
bound to the place it lies at: moved to another by hand, it cannot be read there. Pure; the encryption itself is a
codec's. Called by `drivers.sealing`, and by whoever reads or shows what a store gives.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Protocol
from uuid import UUID

from .errors import PayloadUnreadable
from .job import JobId

# The digit is the version of the form; what no release knows is unreadable, not plain.
_MARK = "~"
_FORM = "~1"
# Words, unlike JSON, may begin like a sealed text.
_SEALED_WORDS = re.compile(r"~1[A-Za-z0-9+/]{16,}={0,2}")
NO_CODEC_FIX = (
    "give this process the codec or the key: OUTLAST_PAYLOAD_KEY_FILE or OUTLAST_PAYLOAD_CODEC, as where it was written"
)
CHANGED_FIX = "restore the row from a backup: it was changed in the database, or put in the place of another"


class PayloadCodec(Protocol):
    """What encrypts and decrypts; called for every value on the event loop, so without I/O.

    `context` is where the value belongs. It is not secret and not stored: authenticate it, so that what lies elsewhere
    is refused.
    """

    def encode(self, plain: bytes, context: bytes) -> bytes:
        """Give what is stored of a value."""
        ...

    def decode(self, stored: bytes, context: bytes) -> bytes:
        """Give the value back.

        Raises:
            PayloadUnreadable: it was changed, is not of this context, or its key is not here.
        """
        ...


class Recode(Protocol):
    """Gives texts of one job for another, as a fork copies them. Raises `PAYLOAD_UNREADABLE`."""

    def payload(self, text: str, was: JobId, now: JobId) -> str:
        """Give the payload's text for the new job."""
        ...

    def value(self, text: str, was: JobId, now: JobId, step: str) -> str:
        """Give the text of a value that a step of the job itself gave, for the new job."""
        ...


class Unreadable(str):
    """A text as it is stored, which could not be decrypted, and why. It is no JSON text."""

    __slots__ = ("why",)
    why: PayloadUnreadable

    @classmethod
    def of(cls, text: str, why: PayloadUnreadable) -> Unreadable:
        """Give the text with its reason."""
        made = cls(text)
        made.why = why
        return made


class Seals:
    """Seals texts with a codec and opens them. `repr` never shows the codec's keys."""

    def __init__(self, codec: PayloadCodec) -> None:
        self._codec = codec

    def __repr__(self) -> str:
        """Name the kind of codec alone."""
        return f"Seals({type(self._codec).__name__})"

    def seal(self, text: str, context: bytes) -> str:
        """Give a text as it is stored; a sealed one, and one no store takes, as it is."""
        return text if is_sealed(text) or "\x1f" in text else self.seal_words(text, context)

    def seal_words(self, text: str, context: bytes) -> str:
        """Give words, which need not be JSON, as they are stored; such as no store takes, as they are."""
        if "\0" in text:
            return text
        try:
            plain = text.encode()
        except UnicodeEncodeError:  # a lone surrogate: the store's to refuse
            return text
        return _FORM + b64encode(self._codec.encode(plain, context)).decode("ascii")

    def open(self, text: str, context: bytes) -> str:
        """Give the text that was sealed, a plain one as it is, and an `Unreadable` for what cannot be opened."""
        if not is_sealed(text):
            return text
        try:
            return self.opened(text, context)
        except PayloadUnreadable as why:
            return Unreadable.of(text, why)

    def open_words(self, text: str, context: bytes) -> str:
        """Give words that were sealed, plain ones as they are, and for what cannot be opened words that say so."""
        if _SEALED_WORDS.fullmatch(text) is None:
            return text
        opened = self.open(text, context)
        return said_of(opened) or text if isinstance(opened, Unreadable) else opened

    def opened(self, text: str, context: bytes) -> str:
        """Give the text that was sealed, a plain one as it is.

        Raises:
            PayloadUnreadable: it cannot be opened.
        """
        if not is_sealed(text):
            return text
        if not text.startswith(_FORM):
            raise PayloadUnreadable("it is encrypted by a newer release", fix="run that release here")
        try:
            return self._codec.decode(b64decode(text[len(_FORM) :], validate=True), context).decode()
        except PayloadUnreadable:
            raise
        except (UnicodeDecodeError, Base64Error) as exc:
            raise PayloadUnreadable("it is encrypted, and was changed in the database", fix=CHANGED_FIX) from exc
        except Exception as exc:  # a codec of the user's own: one value must not take a whole claim with it
            raise PayloadUnreadable(
                f"it is encrypted, and the codec failed: {type(exc).__name__}: {exc}", fix="mend the codec or its keys"
            ) from exc

    def moved(self, text: str, was: bytes, now: bytes) -> str:
        """Give the text of one place for another. Raises `PAYLOAD_UNREADABLE`."""
        return self.seal(self.opened(text, was), now)


def is_sealed(text: str) -> bool:
    """Say whether a stored text is encrypted."""
    return text.startswith(_MARK)


def why_unreadable(text: str | None) -> PayloadUnreadable | None:
    """Say why a text that a store gave cannot be read; None for one that can, and for none."""
    if text is None or not is_sealed(text):
        return None
    if isinstance(text, Unreadable):
        return text.why
    return PayloadUnreadable("it is encrypted, and this process has no key", fix=NO_CODEC_FIX)


def readable(text: str | None) -> str | None:
    """Give a text that a store gave.

    Raises:
        PayloadUnreadable: it is encrypted, and could not be read here.
    """
    why = why_unreadable(text)
    if why is not None:
        raise PayloadUnreadable(why.cause, fix=why.fix) from why
    return text


def said_of(text: str | None) -> str | None:
    """Give the words that are shown in the place of an unreadable text; None for a readable one."""
    why = why_unreadable(text)
    return None if why is None else f"[{why.code}: {why.cause}; {why.fix}]"


def said_as_json(text: str) -> str | None:
    """Give the same as JSON text."""
    said = said_of(text)
    return None if said is None else json.dumps(said)


def of_payload(job_id: UUID) -> bytes:
    """Give the context of a job's payload."""
    return b"payload\0" + job_id.bytes


def of_result(job_id: UUID) -> bytes:
    """Give the context of what a job returned; a call's step in its caller's run holds the same text."""
    return b"result\0" + job_id.bytes


def of_step(job_id: UUID, name: str) -> bytes:
    """Give the context of what a step of a job's own gave."""
    return b"step\0" + job_id.bytes + name.encode("utf-8", "surrogatepass")


# A run holds what an event carried, and does not say which.
OF_EVENT = b"event\0"


def of_notes(job_id: UUID) -> bytes:
    """Give the context of the lines of a run, and of its progress."""
    return b"notes\0" + job_id.bytes


def of_error(job_id: UUID) -> bytes:
    """Give the context of the messages and tracebacks of a job's attempts."""
    return b"error\0" + job_id.bytes


def of_answer(request_id: UUID) -> bytes:
    """Give the context of an answer that is kept for a request that may come again."""
    return b"answer\0" + request_id.bytes
