"""What schemas say of texts, judged by the parsers that a worker's model uses: formats and patterns.

Anything else would let in what the worker then refuses, or refuse what it takes. Called by the compiled schema and by
the library that explains refusals.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

from pydantic import UUID1, UUID3, UUID4, UUID5, UUID6, UUID7, UUID8, AnyUrl, Base64Bytes, TypeAdapter
from pydantic_core import SchemaError, SchemaValidator, core_schema

from ..domain.errors import SettingsInvalid
from ..domain.text import json_pointer

Fits: TypeAlias = Callable[[Any], bool]

ENGINE_WORD: Final = "x-regex-engine"  # beside a pattern, where the model asks for another engine than pydantic's own
PYTHON_ENGINE: Final = "python-re"
DECIMAL_FORMAT: Final = "decimal"  # ours: pydantic's schema of a Decimal takes any text
_TYPES: Final[Mapping[str, Any]] = {
    "date": date,
    "date-time": datetime,
    "time": time,
    "duration": timedelta,
    DECIMAL_FORMAT: Decimal,
    "uuid": UUID,
    "uuid1": UUID1,
    "uuid3": UUID3,
    "uuid4": UUID4,
    "uuid5": UUID5,
    "uuid6": UUID6,
    "uuid7": UUID7,
    "uuid8": UUID8,
    "uri": AnyUrl,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "ipv4interface": ipaddress.IPv4Interface,
    "ipv6interface": ipaddress.IPv6Interface,
    "ipv4network": ipaddress.IPv4Network,
    "ipv6network": ipaddress.IPv6Network,
    "base64": Base64Bytes,
    "regex": re.Pattern[str],
}
_VALUES: Final = frozenset({"default", "examples", "enum", "const"})  # what they hold is no schema


class PatternError(ValueError):
    """No engine that a model may use can read the pattern."""


def _texts_of(kind: Any) -> Fits:  # noqa: ANN401 # a type, or one with constraints
    adapter = TypeAdapter[object](kind)

    def fits(value: object) -> bool:
        try:
            return not isinstance(value, str) or adapter.validator.isinstance_python(value)
        except (RecursionError, OverflowError):  # a parser's own limit
            return False

    return fits


# Formats not named here, paths and passwords among them, are only labels: any text passes.
FORMATS: Final[Mapping[str, Fits]] = {name: _texts_of(kind) for name, kind in _TYPES.items()}


def searcher(pattern: str, engine: object = None) -> Fits:
    r"""Give the function that says whether a text holds a pattern, as the model's engine finds it.

    pydantic's own knows `\p{L}`, and its `$` is the very end. Patterns that it cannot read, a look-ahead say, are for
    models that ask for Python's.

    Raises:
        PatternError: neither can read it.
    """
    try:
        if engine != PYTHON_ENGINE:
            return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
    except SchemaError:
        pass
    try:
        schema = core_schema.str_schema(pattern=pattern, regex_engine=PYTHON_ENGINE)
        return SchemaValidator(schema).isinstance_python
    except (SchemaError, re.error, OverflowError, RecursionError) as exc:
        raise PatternError(str(exc).splitlines()[-1].strip()) from exc


def refuse_unreadable_patterns(schema: object, name: str) -> None:
    """Refuse a schema with a pattern that cannot be searched for, at the declaration and not at every payload.

    Raises:
        SettingsInvalid: naming job, place in the schema and pattern.
    """
    for where, pattern, engine in _patterns(schema):
        try:
            searcher(pattern, engine)
        except PatternError as exc:
            raise SettingsInvalid(
                f"the payload schema of {name} has a pattern at {json_pointer(where)} that cannot be read,"
                f" {pattern!r}: {exc}",
                fix="write it so that pydantic or Python's re can read it",
            ) from exc


def _patterns(schema: object) -> Iterator[tuple[tuple[object, ...], str, object]]:
    todo: list[tuple[tuple[object, ...], object]] = [((), schema)]
    while todo:
        where, part = todo.pop()
        if isinstance(part, list):
            todo.extend(((*where, index), inner) for index, inner in enumerate(part))
        if not isinstance(part, Mapping):
            continue
        if isinstance(part.get("pattern"), str):
            yield (*where, "pattern"), part["pattern"], part.get(ENGINE_WORD)
        keyed = part.get("patternProperties")
        if isinstance(keyed, Mapping):
            yield from (((*where, "patternProperties"), each, None) for each in keyed)
        todo.extend(((*where, word), inner) for word, inner in part.items() if word not in _VALUES)
