"""The one writer of JSON that leaves the service.

Stored text (payloads, results, meta) is embedded as it is: decoding and encoding it again would turn 2^60+1 into a
float in some reader's hands and -0.0 into 0. Times are RFC 3339 in UTC. Called by the HTTP API and `--json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import orjson

Document: TypeAlias = dict[str, object]


def raw(text: str | None) -> orjson.Fragment | None:
    """Mark text that is already valid JSON to be embedded byte for byte; None stays null."""
    return None if text is None else orjson.Fragment(text)


def render(document: Mapping[str, object], *, pretty: bool = False) -> bytes:
    """Give the UTF-8 JSON of a document; `pretty` in lines, for people."""
    return orjson.dumps(document, option=orjson.OPT_UTC_Z | (orjson.OPT_INDENT_2 if pretty else 0))
