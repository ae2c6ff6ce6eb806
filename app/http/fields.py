"""What JSON Schema says about fields that depend on each other; the checks themselves are those of the models.

Words only: nothing here runs when a request is answered. Called by the bodies of requests.
"""

from __future__ import annotations

from collections.abc import Collection

from pydantic import JsonValue

Rule = dict[str, JsonValue]

_NULL: Rule = {"type": "null"}
_GIVEN: Rule = {"not": {"type": "null"}}


def given(*names: str) -> Rule:
    """Say that these fields are there, and not null."""
    return {"required": list[JsonValue](names), "properties": dict.fromkeys(names, _GIVEN)}


def at_most_one(*names: str) -> Rule:
    """Say that not all of these fields are given."""
    return {"not": given(*names)}


def exactly_one(*names: str) -> Rule:
    """Say that one of these fields is given, and no other of them."""
    return {"oneOf": [given(name) for name in names]}


def one_or_more(*names: str) -> Rule:
    """Say that one of these fields is there, or more."""
    return {"anyOf": [{"required": [name]} for name in names]}


def only_with(name: str, field: str, value: str) -> list[JsonValue]:
    """Say that a field is given if, and only if, another has a value; in two rules, without `if`.

    Linters measure examples against each branch of an `if` alone, and miss the other fields there.
    """
    stray: Rule = {"required": [name], "properties": {name: _GIVEN, field: {"not": {"const": value}}}}
    missing: Rule = {"required": [field], "properties": {name: _NULL, field: {"const": value}}}
    return [{"not": stray}, {"not": missing}]


def never_with(name: str, field: str, value: str) -> Rule:
    """Say that a field is not given when another has a value."""
    return {"not": {"required": [name, field], "properties": {name: _GIVEN, field: {"const": value}}}}


def needs(name: str, field: str, schema: Rule) -> Rule:
    """Say that a field is given only where another one fits a schema."""
    fits: Rule = {"required": [field], "properties": {field: schema}}
    return {"anyOf": [{"not": given(name)}, fits]}


def not_null(schema: dict[str, JsonValue], *, but: Collection[str] = ()) -> None:
    """Say of the optional fields of a body that they may be left out, and may not be null; `but` those that may."""
    fields = schema["properties"]
    assert isinstance(fields, dict)  # noqa: S101 - what a model is made into
    for field in (field for name, field in fields.items() if name not in but):
        assert isinstance(field, dict)  # noqa: S101 - same
        options = field.get("anyOf")
        if isinstance(options, list) and _NULL in options:
            (one,) = (each for each in options if each != _NULL)
            assert isinstance(one, dict)  # noqa: S101 - same
            del field["anyOf"]
            field.pop("default", None)
            field |= {name: value for name, value in one.items() if name not in field}
