"""Values to JSON text by their declared type, every digit kept and nothing mended on the way.

A value that has no JSON form is refused: a NaN that silently became null would be found by whoever reads it.
Called for payloads, results and the values of steps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping

from pydantic import Secret, SecretBytes, SecretStr
from pydantic_core import PydanticSerializationError

# What a serialiser, pydantic's or an author's own, says when a value does not fit; anything else is a fault of its own.
_REFUSALS = (PydanticSerializationError, ValueError, TypeError, RecursionError)
_MASK = "**********"  # what pydantic writes in a secret's place
_PLAIN = frozenset({type(None), bool, int, float, str})
_EXPECTED = re.compile(r"Expected (`[^`]+`)")


class UnencodableError(Exception):
    """The value has no JSON form; the message says why."""


def encode_value(dump_json: Callable[..., str | bytes], dump: Callable[..., object], *, is_sure: bool = False) -> str:
    """Give the JSON text of a value; both are pydantic's own, of a model or of an adapter, with the value bound.

    `is_sure`: the value is known to be of its type, and pydantic is not told how to object, which costs more than all
    the rest of a small value.

    Raises:
        UnencodableError: another type, a circular or too deep value, NaN or infinity, a secret that would be masked, or
            no JSON form at all.
    """
    try:
        made = dump_json(by_alias=True, warnings=False if is_sure else "error")
        text = made if isinstance(made, str) else made.decode()
        # Pydantic turns NaN and infinity into null; its Python form still has them.
        if "null" in text and _has(_is_odd_float, dump(mode="python", by_alias=True)):
            raise UnencodableError("it holds NaN or infinity")
        # And secrets into asterisks.
        if _MASK in text and _has(_is_secret, dump(mode="python", by_alias=True)):
            raise UnencodableError("it holds a secret, which would be stored as asterisks")
    except _REFUSALS as exc:
        raise UnencodableError(_reason(exc)) from exc
    return text


def refuse_silent_losses(root: object) -> None:
    """Refuse what would be stored as something else without a word.

    An open file or a generator would be read to its end into a list, once; keys like `1` and `"1"` would become one.

    Raises:
        UnencodableError: the value holds such a thing.
    """
    if type(root) in _PLAIN:
        return
    todo, seen = [root], set[int]()
    while todo:
        value = todo.pop()
        if type(value) in _PLAIN or id(value) in seen:
            continue
        if isinstance(value, Iterator):
            raise UnencodableError(f"it holds a {type(value).__name__}, which can be read only once")
        if isinstance(value, Mapping):
            seen.add(id(value))
            if len({str(key) for key in value}) != len(value):
                raise UnencodableError("it holds two keys that are one in JSON")
            todo.extend(value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            seen.add(id(value))
            todo.extend(value)


def _has(is_it: Callable[[object], bool], root: object) -> bool:
    todo = [root]
    while todo:
        value = todo.pop()
        if is_it(value):
            return True
        if isinstance(value, Mapping):
            todo.extend(value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            todo.extend(value)
    return False


def _is_odd_float(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _is_secret(value: object) -> bool:
    return isinstance(value, Secret | SecretStr | SecretBytes) and bool(value.get_secret_value())


def _reason(exc: Exception) -> str:
    """Say what is wrong. Of pydantic's mismatches only the type is kept: the value follows, and is not for messages."""
    if isinstance(exc, RecursionError):
        return "it is nested too deep, or contains itself"
    said = (str(exc) or type(exc).__name__).removeprefix("Error serializing to JSON: ")
    expected = _EXPECTED.search(said)
    return said.splitlines()[0] if expected is None else f"it is not the declared {expected[1]}"
