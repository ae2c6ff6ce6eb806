"""JSON parsed by its form, with the rules a parser does not keep by itself: repeated keys, odd and endless numbers.

The fast half refuses without knowing where; the slow half reads the text once more and names the place as a pointer
(RFC 6901). Size, depth and number of values are bounded before a text comes here. Called by `json_text`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from .text import json_pointer

_Path: TypeAlias = "tuple[_Path, str | int] | None"
_Object: TypeAlias = "tuple[tuple[str, object], ...]"

# A finite double needs a three-digit exponent or some 200 digits before it can overflow; everything else is spared
# the hooks. The look-behind makes one attempt per run of digits.
_FEW_DIGITS = 200
_HUGE_NUMBER = re.compile(rf"[eE]\+?\d{{3}}|(?<!\d)\d{{{_FEW_DIGITS}}}")
_INFINITE = (float("inf"), float("-inf"))
_LONGEST_POINTER = 500  # characters worth repeating; keys may be as long as the text
_BOX = (list, tuple)  # made once: `list | tuple` in the loop is a new object each time


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """What is wrong, where (RFC 6901), and the repair."""

    what: str
    pointer: str
    fix: str


class _RefusedError(Exception):
    """Raised inside the parser's hooks; what and where is found out afterwards, off the fast path."""


class _TooLong:
    """An integer with more digits than may be read."""


def parse(text: str, *, max_keys: int, max_digits: int) -> object:
    """Give the value of a text, or the `Flaw` that keeps it out.

    Raises:
        json.JSONDecodeError: the text is not JSON in form.
        ValueError: an integer has more digits than the interpreter is set to read.
    """
    try:
        return _decoder(text, max_keys, max_digits).decode(text)
    except _RefusedError:
        # Reads to the end, so a text that breaks a rule and is no JSON further on is refused as no JSON.
        return _locate(text, max_keys, max_digits)


def _decoder(text: str, max_keys: int, max_digits: int) -> json.JSONDecoder:
    if max_digits >= _FEW_DIGITS and _HUGE_NUMBER.search(text) is None:
        if text.count(":") <= max_keys:  # then no object has more
            return _USUAL
        return json.JSONDecoder(object_pairs_hook=_gather(max_keys), parse_constant=_refuse_constant)
    return json.JSONDecoder(
        object_pairs_hook=_gather(max_keys),
        parse_constant=_refuse_constant,
        parse_float=_finite,
        parse_int=_bounded(max_digits),
    )


def _gather(max_keys: int) -> Callable[[list[tuple[str, object]]], dict[str, object]]:
    def gather(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len(pairs) > max_keys:
            raise _RefusedError
        return _unique(pairs)

    return gather


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    gathered = dict(pairs)
    if len(gathered) != len(pairs):
        raise _RefusedError
    return gathered


def _refuse_constant(_name: str) -> NoReturn:
    raise _RefusedError


# Made once: making a decoder costs more than reading a small text.
_USUAL = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)


def _finite(digits: str) -> float:
    number = float(digits)
    if number in _INFINITE:
        raise _RefusedError
    return number


def _bounded(max_digits: int) -> Callable[[str], int]:
    def bounded(digits: str) -> int:
        if len(digits) - digits.startswith("-") > max_digits:
            raise _RefusedError
        return int(digits)

    return bounded


def _locate(text: str, max_keys: int, max_digits: int) -> Flaw:
    """Name the first fault of a text that is JSON in form."""

    def number(digits: str) -> object:
        return _TooLong() if len(digits.lstrip("-")) > max_digits else 0

    # Objects are read as tuples of pairs: a repeated key stays visible, and no Python code runs per object.
    root = json.loads(text, object_pairs_hook=tuple, parse_int=number)
    return _first((("", root),), max_keys, max_digits)


def _first(root: _Object, max_keys: int, max_digits: int) -> Flaw:
    """Walk in document order. One flat loop: this is the slow half of a refusal and has a budget."""
    todo: list[tuple[_Path, _Object | list[object]]] = [(None, root)]
    while todo:
        path, container = todo.pop()
        pairs: Iterable[tuple[str | int, object]] = enumerate(container)
        if isinstance(container, tuple):
            if len(dict(container)) != len(container) or len(container) > max_keys:
                return _odd_object(path, container, max_keys)
            pairs = container
        inner = []
        for name, value in pairs:
            if isinstance(value, _BOX):
                if value:
                    inner.append(((path, name), value))
            elif isinstance(value, _TooLong) or (isinstance(value, float) and value - value != 0):
                return _odd_number((path, name), value, max_digits)
        inner.reverse()
        todo += inner
    return Flaw(what="a value that cannot be kept", pointer="", fix="send plain JSON")


def _odd_object(path: _Path, pairs: _Object, max_keys: int) -> Flaw:
    if len(pairs) > max_keys:
        return Flaw(
            what=f"an object of {len(pairs)} keys where {max_keys} are allowed",
            pointer=_pointer(path),
            fix="send a list, or a reference to the data",
        )
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            path = (path, key)
            break
        seen.add(key)
    return Flaw(what="a key twice", pointer=_pointer(path), fix="send each key once")


def _odd_number(path: _Path, value: object, max_digits: int) -> Flaw:
    if isinstance(value, _TooLong):
        what, fix = f"an integer of more than {max_digits} digits", "send long numbers as strings"
    else:
        what, fix = "a number that is not finite", "send a finite number, a string or null"
    return Flaw(what=what, pointer=_pointer(path), fix=fix)


def _pointer(path: _Path) -> str:
    parts: list[str | int] = []
    while path is not None:
        path, part = path
        parts.append(part)
    # The outermost part is the wrapper that `_locate` put around the root.
    return json_pointer(reversed(parts[:-1]))[:_LONGEST_POINTER]
