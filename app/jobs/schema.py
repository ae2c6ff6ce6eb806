"""Walks a JSON Schema along a dotted path: defaults, what may be there at all, and references that leave the document.

Knows the parts of Draft 2020-12 that pydantic writes. Called by templates and job types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from ..domain.errors import SettingsInvalid

Schema: TypeAlias = Mapping[str, object]
_COMBINED = ("allOf", "anyOf", "oneOf")
_CONSTRAINING = (*_COMBINED, "$ref", "type", "properties", "enum", "const")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class _Missing:
    """The answer when there is nothing at a path: in a payload, or in the document a reference points into."""


MISSING: Final = _Missing()


@dataclass(frozen=True, slots=True)
class SchemaWalk:
    """One schema document, read along paths."""

    root: Schema

    def value_at(self, payload: object, path: tuple[str, ...]) -> object:
        """Give the value as sent, else the schema's default, else `MISSING`."""
        value, schemas = payload, [self.root]
        for name in path:
            schemas = [inner for schema in schemas for inner in self._property(schema, name)]
            if isinstance(value, Mapping) and name in value:
                value = value[name]
            else:
                value = next((schema["default"] for schema in schemas if "default" in schema), MISSING)
            if value is MISSING:
                break
        return value

    def may_have(self, path: tuple[str, ...]) -> bool:
        """Say whether a payload that fits the schema can have a value there."""
        schemas: list[Schema] = [self.root]
        for name in path:
            parts = [part for schema in schemas for part in self._parts(schema)]
            schemas = [inner for schema in schemas for inner in self._property(schema, name)]
            if not schemas:
                return any(_is_open(part) for part in parts)
        return True

    def _property(self, schema: Schema, name: str) -> Iterator[Schema]:
        for part in self._parts(schema):
            properties = part.get("properties")
            inner = properties.get(name) if isinstance(properties, Mapping) else None
            if isinstance(inner, Mapping):
                yield from self._parts(inner)

    def _parts(self, schema: Schema) -> Iterator[Schema]:
        """Give a schema and everything it refers to or combines, each once."""
        todo, seen = [schema], set[int]()
        while todo:
            part = todo.pop(0)
            if id(part) in seen:
                continue
            seen.add(id(part))
            yield part
            reference = part.get("$ref")
            target = resolve(self.root, reference) if isinstance(reference, str) else MISSING
            if isinstance(target, Mapping):
                todo.append(target)
            for word in _COMBINED:
                branches = part.get(word)
                if isinstance(branches, list):
                    todo.extend(branch for branch in branches if isinstance(branch, Mapping))


def resolve(root: Schema, reference: str) -> object:
    """Give what a local reference (`#/$defs/…`) names, `MISSING` when the document does not have it."""
    target: object = root
    for part in reference.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(target, Mapping) or name not in target:
            return MISSING
        target = target[name]
    return target


def _is_open(schema: Schema) -> bool:
    if schema.get("additionalProperties", False) is not False or "patternProperties" in schema:
        return True
    return not any(word in schema for word in _CONSTRAINING)


def refuse_remote_references(schema: object, name: str) -> None:
    """Refuse a schema that points out of its own document: validating a payload must never fetch anything.

    Raises:
        SettingsInvalid: a reference does not start with `#`.
    """
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, Mapping):
            for word in _REFERENCES:
                reference = part.get(word)
                if isinstance(reference, str) and not reference.startswith("#"):
                    raise SettingsInvalid(
                        f"the payload schema of {name} refers to {reference!r}",
                        fix="keep every definition inside the schema ($defs)",
                    )
            todo.extend(part.values())
        elif isinstance(part, list):
            todo.extend(part)
