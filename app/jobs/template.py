"""Templates for keys and tenants: `"order:{order_id}"`, evaluated anywhere from the payload as sent.

A template needs no code of the job's own, so any process that knows the published job type can evaluate it. `{a.b}`
reaches into objects, `{{` and `}}` are braces. Called by policy, describe and job types.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TypeAlias

from ..domain.errors import PayloadInvalid, SettingsInvalid
from ..domain.text import json_pointer
from .schema import MISSING, SchemaWalk

_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<field>[^{}]*)\}|[{}]|[^{}]+")
_FIELD = re.compile(r"[^\s{}.!:\[\]]+(?:\.[^\s{}.!:\[\]]+)*")

_Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A parsed template: literal texts and paths into the payload, in order."""

    text: str
    parts: tuple[str | _Path, ...]

    @property
    def paths(self) -> tuple[_Path, ...]:
        """Give the fields it needs."""
        return tuple(part for part in self.parts if isinstance(part, tuple))

    def render(self, payload: object, walk: SchemaWalk) -> str:
        """Give the text for one payload; fields not sent take the schema's defaults.

        Raises:
            PayloadInvalid: a field is missing, null, an object or a list (detail `pointer`).
        """
        return "".join(part if isinstance(part, str) else self._field(part, payload, walk) for part in self.parts)

    def _field(self, path: _Path, payload: object, walk: SchemaWalk) -> str:
        value = walk.value_at(payload, path)
        match value:
            case str():
                return value
            case bool() | int() | float():
                return json.dumps(value)
            case _:
                what = "missing" if value is MISSING else "null" if value is None else "not a single value"
        name = ".".join(path)
        raise PayloadInvalid(
            f"{name} is {what}, and {self.text!r} is made from it",
            fix=f"send a text, number or boolean as {name}",
            pointer=json_pointer(path),
        )


def parse_template(text: str) -> Template:
    """Read a template, or refuse it with what is wrong.

    Raises:
        SettingsInvalid: a lone brace, an empty field, or a field that is more than dotted names.
    """
    parts: list[str | _Path] = []
    for token in _TOKEN.finditer(text):
        field = token["field"]
        if field is not None:
            if _FIELD.fullmatch(field) is None:
                raise SettingsInvalid(
                    f"{{{field}}} in the template {text!r} is not a field",
                    fix="name a field of the payload, {order_id} or {customer.id}; write {{ and }} for braces",
                )
            parts.append(tuple(field.split(".")))
        elif token[0] in ("{", "}"):
            raise SettingsInvalid(
                f"a lone {token[0]!r} at character {token.start()} of the template {text!r}",
                fix="close the field, or write {{ and }} for braces",
            )
        else:
            parts.append({"{{": "{", "}}": "}"}.get(token[0], token[0]))
    if not parts:
        raise SettingsInvalid("the template is empty", fix="leave it out, or name a field of the payload")
    return Template(text=text, parts=tuple(parts))
