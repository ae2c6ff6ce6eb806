"""JSON as it is let in: what is kept as text must be readable by everybody, for ever, at a bounded cost.

Owns the limits of a JSON text, the raw slices of its members and the fingerprint of its value. Payloads are stored as
the text that was checked here and given back byte for byte, so nothing in this file rewrites a text. Called by
admission, by the HTTP edge for whole bodies, and by the worker for results.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NoReturn

from .errors import JsonInvalid, PayloadTooLarge
from .json_parse import Flaw, parse

KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLimits:
    """What a text may cost. A bare scalar has depth 0; `max_nodes` counts every value, containers and scalars alike."""

    max_bytes: int = 256 * KIB
    max_depth: int = 64
    max_keys: int = 10_000
    max_nodes: int = 100_000
    max_digits: int = 4_300


DEFAULT = JsonLimits()

_BOM = "\ufeff"
# Possessive, and content to end at the end of the text: an unterminated string costs one pass, not one per quote.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NOT_BRACKETS = bytes(set(range(256)) - set(_STEP))
_SPACE = b" \t\n\r"
_SCAN = json.JSONDecoder().raw_decode
_BLANK = re.compile(r"[ \t\n\r]*")
_SUSPECT_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_ESCAPE = re.compile(
    r"(?:\\\\)++"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<nul>\\u0000)"
    r"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def read_text(raw: bytes, *, limits: JsonLimits = DEFAULT) -> str:
    """Turn bytes into text: strict UTF-8 without a byte-order mark, within the byte limit.

    Raises:
        PayloadTooLarge: more bytes than allowed.
        JsonInvalid: not UTF-8 (detail `offset`, in bytes), or a byte-order mark in front.
    """
    if len(raw) > limits.max_bytes:
        _refuse_size(len(raw), limits)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise JsonInvalid(
            f"the text is not UTF-8: byte {exc.start} starts no character", fix="encode it as UTF-8", offset=exc.start
        ) from None
    _refuse_bom(text)
    return text


def decode(text: str, *, limits: JsonLimits = DEFAULT) -> object:
    """Give the value of a JSON text, or refuse it with the place and a repair.

    Depth is checked before anything recurses. Integers keep every digit.

    Raises:
        PayloadTooLarge: more bytes than `limits.max_bytes`.
        JsonInvalid: everything else. Details carry `offset` (in characters) or `pointer` (RFC 6901).
    """
    _refuse_bom(text)
    _refuse_bytes(text, limits)
    _refuse_shape(text, limits)
    _refuse_escapes(text)
    try:
        value = parse(text, max_keys=limits.max_keys, max_digits=limits.max_digits)
    except json.JSONDecodeError as exc:
        raise JsonInvalid(
            f"not JSON at line {exc.lineno}, column {exc.colno}: {exc.msg}",
            fix="send one JSON value, as RFC 8259 defines it",
            offset=exc.pos,
        ) from None
    except ValueError:
        # `int()` refuses at a limit of the interpreter's own, which may be set lower than ours.
        raise JsonInvalid(
            "a number has more digits than this process reads", fix="send long numbers as strings"
        ) from None
    if isinstance(value, Flaw):
        raise JsonInvalid(f"{value.what} at {value.pointer or 'the top'}", fix=value.fix, pointer=value.pointer)
    return value


def members(text: str) -> dict[str, str]:
    """Give the raw text of each top-level member of an object, byte for byte, in order.

    `text` is one that `decode` let through; anything else is refused when it cannot be read, not checked again.

    Raises:
        JsonInvalid: the text is not an object.
    """
    return {name: text[start:end] for name, start, end in member_spans(text)}


def member_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Give where the value of each top-level member of an object begins and ends; as `members`."""
    position = _skip(text, 0)
    if text[position : position + 1] != "{":
        raise JsonInvalid("the text is not a JSON object", fix="send an object: {…}", pointer="")
    position = _skip(text, position + 1)
    while text[position : position + 1] == '"':
        key, after = _value_at(text, position)
        start = _skip(text, _skip(text, after) + 1)
        _, end = _value_at(text, start)
        yield str(key), start, end
        position = _after_comma(text, end)
    _close(text, position, "}")


def elements(text: str) -> list[str]:
    """Give the raw text of each element of an array, byte for byte, in order; `text` as in `members`.

    Raises:
        JsonInvalid: the text is not an array.
    """
    return [text[start:end] for start, end in element_spans(text)]


def element_spans(text: str) -> Iterator[tuple[int, int]]:
    """Give where each element of an array begins and ends; as `elements`."""
    position = _skip(text, 0)
    if text[position : position + 1] != "[":
        raise JsonInvalid("the text is not a JSON array", fix="send an array: […]", pointer="")
    position = _skip(text, position + 1)
    while position < len(text) and text[position] != "]":
        _, end = _value_at(text, position)
        yield position, end
        position = _after_comma(text, end)
    _close(text, position, "]")


def fingerprint(value: object) -> int:
    """Give a signed 64-bit number that is equal for equal payloads, whatever their spacing, key order and escapes.

    Integers count with every digit. `1` and `1.0` differ, and so do `0.0` and `-0.0`, because a handler can tell them
    apart; numbers written with a fraction or an exponent count as the double they denote. `value` is one that `decode`
    gave. The number is stored: changing how it is made turns repeated keys into mismatches.
    """
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    digest = hashlib.blake2b(canonical.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _refuse_bom(text: str) -> None:
    if text.startswith(_BOM):
        raise JsonInvalid(
            "the text starts with a byte-order mark", fix="send UTF-8 without a byte-order mark", offset=0
        )


def _refuse_size(size: int, limits: JsonLimits) -> NoReturn:
    raise PayloadTooLarge(
        f"{size} bytes of JSON; the limit is {limits.max_bytes}",
        fix="store the data elsewhere and send a reference to it",
        size=size,
        limit=limits.max_bytes,
    )


def _refuse_bytes(text: str, limits: JsonLimits) -> None:
    if len(text) > limits.max_bytes:
        _refuse_size(len(text), limits)
    if text.isascii():
        return
    try:
        size = len(text.encode())
    except UnicodeEncodeError as exc:
        raise JsonInvalid(
            f"a lone surrogate at character {exc.start}", fix="send whole characters", offset=exc.start
        ) from None
    if size > limits.max_bytes:
        _refuse_size(size, limits)


def _refuse_shape(text: str, limits: JsonLimits) -> None:
    """Bound depth and number of values before the parser recurses or allocates."""
    opened = text.count("[") + text.count("{")
    if opened <= limits.max_depth and opened + text.count(",") < limits.max_nodes:
        return  # brackets and commas inside strings only make this test stricter
    skeleton = _STRING.sub('"', text).encode("ascii", "replace").translate(None, _SPACE)
    steps = map(_STEP.__getitem__, skeleton.translate(None, _NOT_BRACKETS))
    if max(accumulate(steps), default=0) > limits.max_depth:
        raise JsonInvalid(
            f"nested deeper than {limits.max_depth}", fix="flatten the data", offset=_depth_offset(text, limits)
        )
    # Every container with anything in it holds one value more than it has commas; the root is one more.
    filled = skeleton.count(b"[") + skeleton.count(b"{") - skeleton.count(b"[]") - skeleton.count(b"{}")
    nodes = 1 + skeleton.count(b",") + filled
    if nodes > limits.max_nodes:
        raise JsonInvalid(
            f"{nodes} values; the limit is {limits.max_nodes}",
            fix="send fewer values, or a reference to them",
            pointer="",
        )


def _depth_offset(text: str, limits: JsonLimits) -> int:
    depth = 0
    for match in re.finditer(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', text, re.DOTALL):
        first = match[0][0]
        depth += (first in "[{") - (first in "]}")
        if depth > limits.max_depth:
            return match.start()
    return 0


def _refuse_escapes(text: str) -> None:
    """Find escaped NULs and unpaired surrogate escapes; raw ones are refused elsewhere."""
    suspect = _SUSPECT_ESCAPE.search(text)
    if suspect is None:
        return
    for match in _ESCAPE.finditer(text):
        if match["nul"]:
            raise JsonInvalid(f"a NUL character at character {match.start()}", fix="remove it", offset=match.start())
        if match["lone"]:
            raise JsonInvalid(
                f"a lone surrogate at character {match.start()}", fix="send whole characters", offset=match.start()
            )


def _skip(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return position if match is None else match.end()


def _after_comma(text: str, position: int) -> int:
    position = _skip(text, position)
    return _skip(text, position + 1) if text[position : position + 1] == "," else position


def _value_at(text: str, position: int) -> tuple[object, int]:
    try:
        return _SCAN(text, position)
    except (ValueError, RecursionError):
        raise JsonInvalid(
            f"not JSON at character {position}", fix="send one JSON value, as RFC 8259 defines it", offset=position
        ) from None


def _close(text: str, position: int, bracket: str) -> None:
    if text[position : position + 1] != bracket:
        raise JsonInvalid(
            f"no {bracket} at character {position}", fix="send one JSON value, as RFC 8259 defines it", offset=position
        )
