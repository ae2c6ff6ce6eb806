"""JSON as people give it on a command line: as a text, or as the fields of an object.

Called by the commands that send some.
"""

from __future__ import annotations

import json

from ..domain.errors import RequestInvalid


def payload_text(payload: str, params: list[str]) -> str:
    """Give the payload as JSON: as it was written, or an object of its fields, whose JSON values stay as written."""
    if payload and params:
        raise RequestInvalid("--payload and --param exclude each other", fix="give the payload one way")
    if payload:
        return payload
    fields = []
    for param in params:
        name, sign, value = param.partition("=")
        is_json = name.endswith(":")
        if not sign or not name.rstrip(":"):
            raise RequestInvalid(f"{param!r} is not a field", fix="write name=text or name:=JSON")
        fields.append(f"{json.dumps(name.rstrip(':'))}: {value if is_json else json.dumps(value)}")
    return "{" + ", ".join(fields) + "}"
