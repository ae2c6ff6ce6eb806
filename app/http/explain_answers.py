"""What callers are answered who ask why, field by field, for the OpenAPI document and the tests.

Rendered by `control`, like all answers never through these models. A test holds the two together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from ..domain.reason import ReasonCode, ReasonKind
from ..domain.state import State
from .answers import Answer


class ExplainedReason(Answer):
    """One reason why a job is not running."""

    code: ReasonCode
    kind: ReasonKind = Field(description="What it is about: the job's state, its queue, the workers, or its turn.")
    blocks: bool = Field(description="Whether not even a worker that serves queue, name and version would claim it.")
    text: str
    facts: dict[str, Any] = Field(description="By code; the documentation lists the names.")
    repair: str | None = Field(description="What would change it, where something can.")


class Explained(Answer):
    """Why a job is not running, the strongest reason first; at least one."""

    id: UUID
    name: str
    queue: str
    state: State
    at: datetime = Field(description="The instant all of this held at, by the store's clock.")
    runnable: bool = Field(description="Whether a worker that serves its queue, name and version would claim it.")
    served: bool = Field(description="Whether there is such a worker, and it is not leaving.")
    reasons: list[ExplainedReason]
