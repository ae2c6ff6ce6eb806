"""What an operator is answered who asks the doctor, field by field, for the OpenAPI document and the tests.

Rendered by `control`, like all answers never through these models. A test holds the two together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from ..control.doctor.finding import Level
from .answers import Answer


class CheckFound(Answer):
    """What one check found."""

    code: str
    title: str
    level: Level = Field(description="`fail` breaks a promise or stops work, `warn` costs speed or will.")
    text: str
    facts: dict[str, Any]
    fix: str | None = Field(description="What to do.")
    commands: list[str] = Field(description="SQL, commands and settings that do it, where it can be typed.")


class Checkup(Answer):
    """What the doctor found, in the order of its checks."""

    status: Level = Field(description="The worst of all: `ok`, `warn` or `fail`.")
    at: datetime
    checks: list[CheckFound]
