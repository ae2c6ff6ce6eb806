"""Payloads against a published JSON Schema, in processes that do not have the job's code.

Nothing is fetched, formats that a worker would refuse are checked, and messages name the rule but never repeat the
value: payloads are not for logs and answers. Called by `jobtype`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Any, NoReturn

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.protocols import Validator

from ..domain.errors import PayloadInvalid, SettingsInvalid
from ..domain.text import json_pointer
from .schema import Schema, refuse_remote_references
from .schema_explain import explaining_validator
from .schema_fit import compile_fit
from .schema_texts import FORMATS, refuse_unreadable_patterns

_MOST_ERRORS = 20
_LONGEST_RULE = 200  # characters of a schema's rule worth repeating


class SchemaCheck:
    """The payload schema of one job type, compiled on first use."""

    def __init__(self, name: str, schema: Schema) -> None:
        """Take a schema.

        Raises:
            SettingsInvalid: it is not a schema, it points out of its own document, or a pattern cannot be read.
        """
        refuse_remote_references(schema, name)
        try:
            # Without formats: of them only "regex" is asserted, and that by Python's own engine.
            Draft202012Validator.check_schema(schema, format_checker=FormatChecker(formats=()))
        except SchemaError as exc:
            raise SettingsInvalid(
                f"the payload schema of {name} is not a JSON Schema at {json_pointer(exc.absolute_path) or 'its top'}:"
                f" {exc.message[:_LONGEST_RULE]}",
                fix="correct what the model adds to its schema, and publish the job type again",
            ) from exc
        refuse_unreadable_patterns(schema, name)
        self._name = name
        self._schema = schema
        self._fit = compile_fit(schema, schema, FORMATS)

    def check(self, payload: Any) -> None:  # noqa: ANN401 # whatever a JSON text holds
        """Let a payload through, or say where and why not.

        Raises:
            PayloadInvalid: details `errors` hold up to 20 `{pointer, message}`.
            SettingsInvalid: the schema refers to itself without end.
        """
        try:
            if self._fit is not None and self._fit(payload):
                return
            errors = [_error(error) for error in islice(self._validator.iter_errors(payload), _MOST_ERRORS)]
        except RecursionError as exc:
            raise SettingsInvalid(
                f"the payload schema of {self._name} refers to itself without end",
                fix="publish the job type again with a schema that ends",
            ) from exc
        except ArithmeticError:  # a rule of the library's own that counts in doubles
            errors = [{"pointer": "", "message": "holds a number that is too large to be measured"}]
        if errors:
            refuse_payload(self._name, errors)

    @cached_property
    def _validator(self) -> Validator:
        return explaining_validator(self._schema)


def refuse_payload(name: str, errors: list[dict[str, str]]) -> NoReturn:
    """Refuse a payload with all that was found.

    Raises:
        PayloadInvalid: always.
    """
    first = errors[0]
    raise PayloadInvalid(
        f"the payload of {name} does not fit at {first['pointer'] or 'the top'}: {first['message']}",
        fix=f"send what the payload schema of {name} asks for: GET /v1/job-types/{name}",
        errors=errors,
    )


def _error(error: ValidationError) -> dict[str, str]:
    return {"pointer": json_pointer(error.absolute_path), "message": _message(error)}


def _message(error: ValidationError) -> str:
    rule = error.validator_value
    match error.validator:
        case "type":
            return f"must be of type {' or '.join(rule) if isinstance(rule, list) else rule}"
        case "required":
            return f"lacks {', '.join(_lacking(rule, error.instance))}"
        case "additionalProperties" | "unevaluatedProperties":
            return "has a field that the job type does not know"
        case "anyOf" | "oneOf":
            return "fits none of the allowed shapes, or more than one"
        case _:
            return f"must hold to {error.validator} {json.dumps(rule, ensure_ascii=False, default=str)[:_LONGEST_RULE]}"


def _lacking(required: object, instance: object) -> Iterator[str]:
    names = required if isinstance(required, list) else []
    return (str(name) for name in names if not isinstance(instance, dict) or name not in instance)
