"""JSON Schemas compiled to plain functions, for the parts of Draft 2020-12 that payloads are made of.

The validating library takes some 20 microseconds for every value; a hundred thousand of them would hold an event loop
for seconds. A compiled schema says yes or no exactly and far sooner; the library is asked only where the answer is no,
to say why, and for schemas with parts that are not compiled. Called by `payload_schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from jsonschema import Draft202012Validator

from .schema import resolve
from .schema_texts import ENGINE_WORD, Fits, searcher
from .schema_values import are_unique, identity, is_integer, is_multiple, is_number

_Compiler: TypeAlias = Callable[["_Compilation", Any, Mapping[str, Any]], Fits]


class _NotCompiledError(Exception):
    """A part of the schema is left to the library."""


def compile_fit(root: Mapping[str, Any], schema: object, formats: Mapping[str, Fits]) -> Fits | None:
    """Give the function that says whether a value fits `schema`, None when a part of it is not compiled.

    `root` is the document that references point into; `formats` are the formats to assert, all others pass.
    """
    try:
        return _Compilation(root, formats).fits(schema)
    except _NotCompiledError:
        return None


class _Compilation:
    """One schema and all it refers to; references to what is being compiled are looked up when they are used."""

    def __init__(self, root: Mapping[str, Any], formats: Mapping[str, Fits]) -> None:
        self.root = root
        self.formats = formats
        self._referred: dict[str, Fits | None] = {}

    def fits(self, schema: object) -> Fits:
        """Compile one schema."""
        if isinstance(schema, bool):
            return lambda _value: schema
        if not isinstance(schema, Mapping):
            raise _NotCompiledError
        tests: list[Fits] = []
        if not _MEMBER_WORDS.isdisjoint(schema):
            tests.append(_members(self, schema))
        for word, rule in schema.items():
            compiler = _COMPILERS.get(word)
            if compiler is not None:
                tests.append(compiler(self, rule, schema))
            elif word in _LEFT_TO_THE_LIBRARY:
                raise _NotCompiledError
        if len(tests) == 1:
            return tests[0]
        return lambda value: all(test(value) for test in tests)

    def referred(self, reference: object, _schema: Mapping[str, Any]) -> Fits:
        """Compile what a local reference names."""
        if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
            raise _NotCompiledError
        if reference not in self._referred:
            self._referred[reference] = None
            self._referred[reference] = self.fits(resolve(self.root, reference))
        known = self._referred[reference]
        if known is not None:
            return known

        def later(value: object) -> bool:
            fits = self._referred[reference]
            return fits is not None and fits(value)

        return later


_TYPES: dict[str, Fits] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": is_integer,
    "number": is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def _type(_to: _Compilation, rule: Any, _schema: Mapping[str, Any]) -> Fits:  # noqa: ANN401 # as written in a schema
    names = rule if isinstance(rule, list) else [rule]
    tests = [_TYPES[name] for name in names if name in _TYPES]
    if len(tests) != len(names):
        raise _NotCompiledError
    return tests[0] if len(tests) == 1 else lambda value: any(test(value) for test in tests)


def _enum(_to: _Compilation, rule: list[object], _schema: Mapping[str, Any]) -> Fits:
    if all(isinstance(value, str) for value in rule):
        texts = frozenset(rule)
        return lambda value: isinstance(value, str) and value in texts
    known = frozenset(map(identity, rule))
    return lambda value: identity(value) in known


def _const(to: _Compilation, rule: object, schema: Mapping[str, Any]) -> Fits:
    return _enum(to, [rule], schema)


def _members(to: _Compilation, schema: Mapping[str, Any]) -> Fits:
    """Compile the words about members together: each changes what the others mean."""
    properties = {name: to.fits(inner) for name, inner in schema.get("properties", {}).items()}
    patterns = [(searcher(each), to.fits(inner)) for each, inner in schema.get("patternProperties", {}).items()]
    other = to.fits(schema.get("additionalProperties", True))
    required = tuple(schema.get("required", ()))

    def fits_member(name: str, member: object) -> bool:
        tests = [properties[name]] if name in properties else []
        tests += [test for searches, test in patterns if searches(name)]
        return all(test(member) for test in tests or [other])

    def fits(value: object) -> bool:
        if not isinstance(value, dict):
            return True
        if not all(name in value for name in required):
            return False
        if patterns:
            return all(fits_member(name, member) for name, member in value.items())
        return all(properties.get(name, other)(member) for name, member in value.items())

    return fits


def _names(to: _Compilation, rule: object, _schema: Mapping[str, Any]) -> Fits:
    name = to.fits(rule)
    return lambda value: not isinstance(value, dict) or all(map(name, value))


def _items(to: _Compilation, rule: object, schema: Mapping[str, Any]) -> Fits:
    item, first = to.fits(rule), len(schema.get("prefixItems", ()))
    return lambda value: not isinstance(value, list) or all(map(item, value[first:] if first else value))


def _first_items(to: _Compilation, rule: list[object], _schema: Mapping[str, Any]) -> Fits:
    tests = [to.fits(inner) for inner in rule]
    return lambda value: (
        not isinstance(value, list) or all(test(item) for test, item in zip(tests, value, strict=False))
    )


def _unique(_to: _Compilation, rule: object, _schema: Mapping[str, Any]) -> Fits:
    return lambda value: not rule or not isinstance(value, list) or are_unique(value)


def _any_of(to: _Compilation, rule: list[object], _schema: Mapping[str, Any]) -> Fits:
    tests = [to.fits(inner) for inner in rule]
    return lambda value: any(test(value) for test in tests)


def _all_of(to: _Compilation, rule: list[object], _schema: Mapping[str, Any]) -> Fits:
    tests = [to.fits(inner) for inner in rule]
    return lambda value: all(test(value) for test in tests)


def _one_of(to: _Compilation, rule: list[object], _schema: Mapping[str, Any]) -> Fits:
    tests = [to.fits(inner) for inner in rule]
    return lambda value: sum(test(value) for test in tests) == 1


def _pattern(_to: _Compilation, rule: str, schema: Mapping[str, Any]) -> Fits:
    search = searcher(rule, schema.get(ENGINE_WORD))
    return lambda value: not isinstance(value, str) or search(value)


def _format(to: _Compilation, rule: str, _schema: Mapping[str, Any]) -> Fits:
    return to.formats.get(rule, lambda _value: True)


def _bound(
    measure: Fits, within: Callable[[Any, Any], bool], size: Callable[[Any], Any] = lambda value: value
) -> _Compiler:
    def compiler(_to: _Compilation, rule: object, _schema: Mapping[str, Any]) -> Fits:
        return lambda value: not measure(value) or within(size(value), rule)

    return compiler


def _at_least(value: Any, rule: Any) -> bool:  # noqa: ANN401 # numbers, as `measure` found
    return bool(value >= rule)


def _at_most(value: Any, rule: Any) -> bool:  # noqa: ANN401 # as above
    return bool(value <= rule)


_COMPILERS: dict[str, _Compiler] = {
    "$ref": _Compilation.referred,
    "type": _type,
    "enum": _enum,
    "const": _const,
    "items": _items,
    "prefixItems": _first_items,
    "uniqueItems": _unique,
    "propertyNames": _names,
    "anyOf": _any_of,
    "allOf": _all_of,
    "oneOf": _one_of,
    "pattern": _pattern,
    "format": _format,
    "minimum": _bound(is_number, _at_least),
    "maximum": _bound(is_number, _at_most),
    "exclusiveMinimum": _bound(is_number, lambda value, rule: bool(value > rule)),
    "exclusiveMaximum": _bound(is_number, lambda value, rule: bool(value < rule)),
    "multipleOf": _bound(is_number, is_multiple),
    "minLength": _bound(_TYPES["string"], _at_least, len),
    "maxLength": _bound(_TYPES["string"], _at_most, len),
    "minItems": _bound(_TYPES["array"], _at_least, len),
    "maxItems": _bound(_TYPES["array"], _at_most, len),
    "minProperties": _bound(_TYPES["object"], _at_least, len),
    "maxProperties": _bound(_TYPES["object"], _at_most, len),
}
_MEMBER_WORDS = frozenset({"properties", "patternProperties", "additionalProperties", "required"})
_LEFT_TO_THE_LIBRARY = {"$id", *Draft202012Validator.VALIDATORS} - _MEMBER_WORDS - set(_COMPILERS)
