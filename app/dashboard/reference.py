"""The description of the HTTP API as people read it: operations by subject, each with its fields and an example.

Made from the OpenAPI document alone, so it says of this service what the document says. Pure; a page shows it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]
_METHODS = ("get", "post", "patch", "put", "delete")
_DEEPEST = 6
_REF = "#/components/"
_BOUNDS = {
    "minimum": "≥ {}",
    "maximum": "≤ {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
    "minItems": "at least {}",
    "maxItems": "at most {}",
    "pattern": "matches {}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A parameter, or a field of a body. `place` is where it is sent: path, query, header, or body."""

    name: str
    place: str
    type: str
    is_required: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What may be answered: the status, in words, the schema's name, and an example where there is one."""

    status: str
    text: str
    schema: str
    example: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of the API."""

    id: str
    method: str
    path: str
    summary: str
    text: str
    is_open: bool
    fields: tuple[Field, ...]
    answers: tuple[Answer, ...]
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Operations about one thing."""

    name: str
    text: str
    operations: tuple[Operation, ...]


class Reference:
    """The API as one document describes it."""

    def __init__(self, document: Json) -> None:
        self._document = document
        found = [operation for path, methods in document["paths"].items() for operation in self._of(path, methods)]
        self.operations = {operation.id: operation for _, operation in found}
        self.subjects = tuple(
            Subject(
                name=tag["name"],
                text=tag["description"],
                operations=tuple(operation for tags, operation in found if tag["name"] in tags),
            )
            for tag in document["tags"]
        )

    def _of(self, path: str, methods: Json) -> Iterator[tuple[list[str], Operation]]:
        for method in _METHODS:
            operation = methods.get(method)
            if operation is not None:
                yield operation.get("tags", []), self._operation(path, method, operation)

    def _operation(self, path: str, method: str, operation: Json) -> Operation:
        body = self._resolved(operation.get("requestBody", {}))
        nothing: tuple[str, Json] = ("", {})
        media_type, content = next(iter(body.get("content", {}).items()), nothing)
        return Operation(
            id=operation["operationId"],
            method=method.upper(),
            path=path,
            summary=operation.get("summary", ""),
            text=operation.get("description", ""),
            is_open=operation.get("security") == [],
            fields=(*self._parameters(operation), *self._body(content.get("schema", {}))),
            answers=tuple(self._answer(status, each) for status, each in sorted(operation["responses"].items())),
            command=_command(path, method, operation, media_type, _example(content)),
        )

    def _parameters(self, operation: Json) -> Iterator[Field]:
        for sent in operation.get("parameters", []):
            each = self._resolved(sent)
            yield Field(
                name=each["name"],
                place=each["in"],
                type=self.type_of(each.get("schema", {})),
                is_required=bool(each.get("required")),
                text=each.get("description", ""),
            )

    def _body(self, schema: Json) -> Iterator[Field]:
        resolved = self._resolved(schema)
        required = resolved.get("required", [])
        for name, each in resolved.get("properties", {}).items():
            text = each.get("description") or self._resolved(each).get("description", "")
            yield Field(name=name, place="body", type=self.type_of(each), is_required=name in required, text=text)

    def _answer(self, status: str, sent: Json) -> Answer:
        response = self._resolved(sent)
        nothing: Json = {}
        content: Json = next(iter(response.get("content", {}).values()), nothing)
        example = _example(content)
        return Answer(
            status=status,
            text=response.get("description", ""),
            schema=self.type_of(content["schema"]) if "schema" in content else "",
            example=None if example is None else example if isinstance(example, str) else _pretty(example),
        )

    def type_of(self, schema: Json, depth: int = 0) -> str:
        """Say what a schema takes, in a line."""
        if depth > _DEEPEST:
            return "…"
        if "$ref" in schema:
            name = str(schema["$ref"]).rpartition("/")[2]
            words = self._resolved(schema).get("enum")
            return name if words is None else _one_of(words)
        for key in ("anyOf", "oneOf", "allOf"):
            if key in schema:
                return " or ".join(dict.fromkeys(self.type_of(each, depth + 1) for each in schema[key]))
        if "enum" in schema or "const" in schema:
            return _one_of(schema.get("enum", [schema.get("const")]))
        kind = schema.get("type", "any JSON")
        if kind == "array":
            kind = f"list of {self.type_of(schema.get('items', {}), depth + 1)}"
        bounds = [words.format(schema[name]) for name, words in _BOUNDS.items() if name in schema]
        return ", ".join([str(schema.get("format", kind)), *bounds])

    def _resolved(self, part: Json) -> Json:
        while "$ref" in part:
            found: Any = self._document["components"]
            for name in str(part["$ref"]).removeprefix(_REF).split("/"):
                found = found[name]
            part = found
        return part


def _one_of(words: list[object]) -> str:
    return " | ".join("null" if word is None else str(word) for word in words)


def _example(content: Json) -> object:
    examples = content.get("examples")
    return content.get("example") if not examples else next(iter(examples.values())).get("value")


def _command(path: str, method: str, operation: Json, media_type: str, example: object) -> str:
    """Give the command that sends the operation's first example."""
    lines = ["curl -s" if method == "get" else f"curl -s -X {method.upper()}"]
    lines[0] += f' "$OUTLAST{path}"'
    if operation.get("security") != []:
        lines.append('-H "authorization: Bearer $KEY"')
    if media_type and example is not None:
        lines.append(f"-H {shlex.quote(f'content-type: {media_type}')}")
        lines.append(f"-d {shlex.quote(json.dumps(example, ensure_ascii=False))}")
    return " \\\n  ".join(lines)


def _pretty(example: object) -> str:
    return json.dumps(example, indent=2, ensure_ascii=False)
