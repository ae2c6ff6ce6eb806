"""Behind a pooler asyncpg asks about the types of arrays once, and knows all that the statements use."""

from __future__ import annotations

import re
from pathlib import Path

from app.drivers.postgres import pooler

_ALSO_CALLED = {"int": "integer"}


def test_every_array_a_statement_uses_is_learnt_at_once() -> None:
    folder = Path(pooler.__file__).parent
    used = {
        _ALSO_CALLED.get(name, name)
        for source in folder.glob("*.py")
        for name in re.findall(r"::([a-z][a-z0-9]*)\[\]", source.read_text())
    }
    assert {"uuid", "integer", "float8"} <= used
    assert used <= set(pooler._ARRAYS)
