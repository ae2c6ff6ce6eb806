"""The query of `GET /v1/stats`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from .requests import Name


class StatsParams(BaseModel):
    """Which chart."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window: Literal["1h", "24h", "7d"] = Field(default="1h", description="How far it reaches back.")
    bucket: Literal["1m", "5m", "15m", "30m", "1h", "3h", "6h", "1d"] | None = Field(
        default=None,
        description="The length of a point: a minute or more of an hour, 15 minutes or more of a day, an hour or more"
        " of a week; the shortest if it is left out.",
    )
    name: Name | None = Field(default=None, description="The job type.")
    queue: Name | None = Field(default=None, description="The queue.")
