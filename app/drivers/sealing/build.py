"""The codec that settings name: the keys of a file, or an object of the user's own. Read once, as a process starts."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Protocol, cast

from ...domain.errors import OutlastError, SettingsInvalid
from ...domain.sealed import PayloadCodec
from ..protocol import JobDriver

_FILE = "OUTLAST_PAYLOAD_KEY_FILE"
_CODEC = "OUTLAST_PAYLOAD_CODEC"
_PROBE = b'"outlast"', b"probe"


class SealingSettings(Protocol):
    """The settings of encryption."""

    @property
    def payload_key_file(self) -> Path | None:
        """Give the file with the keys."""
        ...

    @property
    def payload_codec(self) -> str | None:
        """Give the place of a codec of the user's own."""
        ...


def sealed_as_set(driver: JobDriver, settings: SealingSettings) -> JobDriver:
    """Give the driver over a driver that the settings ask for; the driver itself where they ask for none.

    Raises:
        SettingsInvalid: the codec cannot be made, or does not give back what it was given.
    """
    codec = codec_of(settings)
    if codec is None:
        return driver
    from .driver import sealing  # noqa: PLC0415 - most processes encrypt nothing, and do not load it

    return sealing(driver, codec)


def codec_of(settings: SealingSettings) -> PayloadCodec | None:
    """Give the codec of the settings, None for none. Raises as `sealed_as_set`."""
    path, place = settings.payload_key_file, settings.payload_codec
    if path is not None and place is not None:
        raise SettingsInvalid(f"both {_FILE} and {_CODEC} are set", fix="keep one; your codec reads its own keys")
    if path is not None:
        from .aes import codec_of_lines  # noqa: PLC0415 - as above

        return codec_of_lines(_lines(path))
    return None if place is None else _tried(_loaded(place), place)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError) as exc:
        raise SettingsInvalid(
            f"the key file {path} cannot be read: {type(exc).__name__}",
            fix=f"point {_FILE} to a readable text file with one key per line",
        ) from exc


def _loaded(place: str) -> PayloadCodec:
    module, _, attribute = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
        made = found if hasattr(found, "encode") and not isinstance(found, type) else found()
    except OutlastError:
        raise
    except Exception as exc:  # a module of the user's own may raise anything
        raise SettingsInvalid(
            f"{_CODEC}={place} gives no codec: {type(exc).__name__}: {exc}",
            fix="name module:attribute of an object with encode and decode, or of what makes one without arguments",
        ) from exc
    return cast("PayloadCodec", made)


def _tried(codec: PayloadCodec, place: str) -> PayloadCodec:
    """Refuse a codec that cannot work before anything is stored with it."""
    plain, context = _PROBE
    try:
        is_fit = codec.decode(codec.encode(plain, context), context) == plain
    except Exception as exc:  # as above
        raise SettingsInvalid(
            f"the codec {place} fails on a value: {type(exc).__name__}: {exc}",
            fix="mend it: encode(bytes, bytes) gives bytes, and decode gives the value back",
        ) from exc
    if not is_fit:
        raise SettingsInvalid(
            f"the codec {place} does not give back what it was given",
            fix="mend it: encode(bytes, bytes) gives bytes, and decode gives the value back",
        )
    return codec
