"""The validating library, set up to explain refusals at a bounded cost.

Alone it takes some 20 microseconds for every value, and one wrong value among a hundred thousand would hold an event
loop for seconds. Here it passes over the parts that the compiled schema accepts, fetches nothing, and asserts the
formats that a worker's model would refuse. Called by `payload_schema`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing import Registry

from .schema_fit import compile_fit
from .schema_texts import ENGINE_WORD, FORMATS, Fits, searcher
from .schema_values import are_unique, is_integer, is_multiple, is_number

_Errors: TypeAlias = Iterator[ValidationError]


def explaining_validator(schema: Mapping[str, Any]) -> Validator:
    """Give a validator whose first errors come soon, however large the payload is around them."""
    words = _Words(schema)
    guided = extend(  # type: ignore[no-untyped-call] # the library's stubs leave it untyped
        Draft202012Validator,
        {
            "multipleOf": _multiple_of,
            "uniqueItems": _unique_items,
            "pattern": words.pattern,
            "items": words.items,
            "patternProperties": words.pattern_properties,
            "properties": words.properties,
            "additionalProperties": words.additional_properties,
            "anyOf": words.any_of,
            "oneOf": words.one_of,
        },
        type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _checker, value: is_integer(value)),
    )
    formats = FormatChecker(formats=())
    for name, fits in FORMATS.items():
        formats.checks(name)(fits)
    # Without a registry of its own the library would fetch what a reference names.
    registry: Registry[Any] = Registry()
    validator: Validator = guided(schema, registry=registry, format_checker=formats)
    return validator


def _multiple_of(_validator: Any, rule: Any, instance: Any, _schema: Any) -> _Errors:  # noqa: ANN401 # the library's
    """Explain `multipleOf`: the library divides doubles, and an integer may be larger than any of them."""
    if is_number(instance) and not is_multiple(instance, rule):
        yield ValidationError("no multiple")


def _unique_items(_validator: Any, rule: Any, instance: Any, _schema: Any) -> _Errors:  # noqa: ANN401 # the library's
    """Explain `uniqueItems`: the library compares every item with every other."""
    if rule and isinstance(instance, list) and not are_unique(instance):
        yield ValidationError("not unique")


class _Words:
    """The words of a schema that go into a value, passing over what fits."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._compiled: dict[int, Fits | None] = {}
        self._searchers: dict[tuple[str, object], Fits] = {}

    def pattern(self, _validator: Any, rule: Any, instance: Any, schema: Any) -> _Errors:  # noqa: ANN401
        """Explain `pattern`."""
        if isinstance(instance, str) and not self._holds(rule, instance, schema.get(ENGINE_WORD)):
            yield ValidationError("does not match")

    def items(self, validator: Any, rule: Any, instance: Any, schema: Any) -> _Errors:  # noqa: ANN401 # the library's
        """Explain `items`."""
        if isinstance(instance, list):
            for index in range(len(schema.get("prefixItems", ())), len(instance)):
                yield from self._go_into(validator, rule, instance, index)

    def properties(self, validator: Any, rule: Any, instance: Any, _schema: Any) -> _Errors:  # noqa: ANN401
        """Explain `properties`."""
        if isinstance(instance, dict):
            for name in rule:
                if name in instance:
                    yield from self._go_into(validator, rule[name], instance, name)

    def pattern_properties(self, validator: Any, rule: Any, instance: Any, _schema: Any) -> _Errors:  # noqa: ANN401
        """Explain `patternProperties`."""
        if isinstance(instance, dict):
            for pattern, inner in rule.items():
                for name in instance:
                    if self._holds(pattern, name):
                        yield from self._go_into(validator, inner, instance, name)

    def additional_properties(self, validator: Any, rule: Any, instance: Any, schema: Any) -> _Errors:  # noqa: ANN401
        """Explain `additionalProperties`."""
        if not isinstance(instance, dict):
            return
        patterns, known = schema.get("patternProperties", ()), schema.get("properties", {})
        for name in instance:
            if name in known or any(self._holds(pattern, name) for pattern in patterns):
                continue
            if rule is False:
                yield ValidationError("unknown")
                return
            yield from self._go_into(validator, rule, instance, name)

    def any_of(self, validator: Any, rule: Any, instance: Any, _schema: Any) -> _Errors:  # noqa: ANN401
        """Explain `anyOf`, without the errors of every branch."""
        if not any(self._is_valid(validator, branch, instance) for branch in rule):
            yield ValidationError("none fits")

    def one_of(self, validator: Any, rule: Any, instance: Any, _schema: Any) -> _Errors:  # noqa: ANN401
        """Explain `oneOf`, without the errors of every branch."""
        if sum(self._is_valid(validator, branch, instance) for branch in rule) != 1:
            yield ValidationError("not exactly one fits")

    def _go_into(self, validator: Any, schema: Any, container: Any, place: str | int) -> _Errors:  # noqa: ANN401
        value = container[place]
        fits = self._fits(schema)
        if fits is None or not fits(value):
            yield from validator.descend(value, schema, path=place)

    def _is_valid(self, validator: Any, schema: Any, value: object) -> bool:  # noqa: ANN401
        fits = self._fits(schema)
        return bool(validator.evolve(schema=schema).is_valid(value)) if fits is None else fits(value)

    def _holds(self, pattern: str, text: str, engine: object = None) -> bool:
        which = (pattern, engine)
        if which not in self._searchers:
            self._searchers[which] = searcher(pattern, engine)
        return self._searchers[which](text)

    def _fits(self, schema: Any) -> Fits | None:  # noqa: ANN401
        # By identity: the schemas are parts of the root, which this object keeps.
        if id(schema) not in self._compiled:
            self._compiled[id(schema)] = compile_fit(self._root, schema, FORMATS)
        return self._compiled[id(schema)]
