"""The JSON Schema of a payload model, saying as much of what the model takes as the words of JSON Schema can.

pydantic's own leaves out what a process without the model needs to judge a payload as the worker will: that a Decimal's
text is a number, which keys a mapping may have, that a time needs its zone, which engine reads a pattern. Called by
`describe`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from ..domain.errors import SettingsInvalid
from .schema_texts import DECIMAL_FORMAT, ENGINE_WORD, PYTHON_ENGINE

_ZONED = r"([Zz]|[+-]\d{2}:?\d{2})$"
_WHOLE_KEY = "^-?[0-9]+$"
_FLAGS = ((re.IGNORECASE, "i"), (re.MULTILINE, "m"), (re.DOTALL, "s"), (re.VERBOSE, "x"), (re.ASCII, "a"))


def payload_schema(job: str, model: type[BaseModel]) -> dict[str, Any]:
    """Give the schema that a job type publishes for its payload.

    Raises:
        SettingsInvalid: the model has none; job and field are named.
    """
    try:
        schema = model.model_json_schema(by_alias=True, mode="validation", schema_generator=_PayloadSchema)
        json.dumps(schema, allow_nan=False)  # a default or a bound may be NaN
    except Exception as exc:  # hooks of the author's own may raise anything
        field = ".".join(_failing(model, set()))
        raise SettingsInvalid(
            f"the payload of {job} has no JSON Schema: {f'the field {field}' if field else model.__name__}"
            f" cannot be described: {_said(exc)}",
            fix="give it a type and a default that JSON can carry, or annotate it with pydantic's WithJsonSchema",
        ) from exc
    return schema


class _PayloadSchema(GenerateJsonSchema):
    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        made = super().decimal_schema(schema)
        for branch in made.get("anyOf", [made]):
            if branch.get("type") == "string":
                branch["format"] = DECIMAL_FORMAT
        return made

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        made = super().dict_schema(schema)
        if "patternProperties" in made:
            made.setdefault("additionalProperties", False)
        if schema.get("keys_schema", {}).get("type") == "int":
            made.setdefault("propertyNames", {"pattern": _WHOLE_KEY})
        return made

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        zone = {"pattern": _ZONED} if schema.get("tz_constraint") == "aware" else {}
        return super().datetime_schema(schema) | zone

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:
        zone = {"pattern": _ZONED} if schema.get("tz_constraint") == "aware" else {}
        return super().time_schema(schema) | zone

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        made, pattern = super().str_schema(schema), schema.get("pattern")
        if isinstance(pattern, re.Pattern):
            letters = "".join(letter for flag, letter in _FLAGS if pattern.flags & flag)
            made["pattern"] = f"(?{letters}){pattern.pattern}" if letters else pattern.pattern
        is_python = schema.get("regex_engine", self._config.regex_engine) == PYTHON_ENGINE
        if pattern is not None and (is_python or isinstance(pattern, re.Pattern)):
            made[ENGINE_WORD] = PYTHON_ENGINE
        return made


def _failing(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[str]:
    """Give the path to the first field that has no schema, as it is written in JSON; nothing when none is alone."""
    seen.add(model)
    for name, field in model.model_fields.items():
        kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        default = {} if field.is_required() else {"default": field.default}
        try:
            adapter = TypeAdapter[object](kind)
            json.dumps(adapter.json_schema(schema_generator=_PayloadSchema), allow_nan=False)
            if isinstance(default.get("default"), float):
                json.dumps(default, allow_nan=False)
        except Exception:  # noqa: BLE001 # as above
            yield field.alias or name
            inner = next((each for each in _models_in(field.annotation) if each not in seen), None)
            if inner is not None:
                yield from _failing(inner, seen)
            return


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)


def _said(exc: Exception) -> str:
    """Give the first line: pydantic's go on with an address."""
    return (str(exc).strip() or type(exc).__name__).splitlines()[0]
