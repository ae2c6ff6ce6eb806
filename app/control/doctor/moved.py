"""The command that goes on with a move that was cut, made of what the audit has of it. Pure; used by the checks.

The audit names an address without a user, and nothing ties a row to what was left but the database's name: where rows
name several addresses with a database of that name, none is chosen, as the wrong one would get all other jobs as well.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from urllib.parse import quote, unquote

from ...domain.audit import AuditView
from ...domain.vitals import OnTheWay

_DEFAULT_SCHEMA = "outlast"
_PLACE = re.compile(r"(?P<host>\[[^\]]+\]|/[^:]*|[^:/\[\]]*)(?::(?P<port>\d+))?")


def again(move: OnTheWay, moved: Sequence[AuditView]) -> str | None:
    """Give the command for a move, of rows of the audit, newest first; None where they do not say where it went."""
    told = [json.loads(row.details) for row in moved]
    there = [each for each in told if _database(each.get("to", "")) == move.database]
    if len({each["to"] for each in there}) != 1:
        return None
    address = _url(there[0]["to"])
    if address is None:
        return None
    schema, queue = move.target.rpartition("/")[2], there[0].get("queue")
    words = ["outlast", "jobs", "move", "--to", address, *(() if queue is None else ("--queue", queue))]
    return ("" if schema == _DEFAULT_SCHEMA else f"OUTLAST_SCHEMA={schema} ") + shlex.join(words)


def _database(address: str) -> str:
    return unquote(address.rpartition("/")[2])


def _url(address: str) -> str | None:
    """Give an address of the audit, `host:port/database`, as one that can be connected to; None if it is none."""
    place, _, database = address.rpartition("/")
    found = _PLACE.fullmatch(place)
    if found is None:
        return None
    host, port = found["host"], found["port"]
    if not host.startswith("/"):
        return f"postgresql://{place}/{database}"
    return f"postgresql:///{database}?host={quote(host)}" + ("" if port is None else f"&port={port}")
