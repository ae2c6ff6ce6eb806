"""A job that ended while it waited says why, with a code, wherever it is read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.http.answers import Job
from tests.http.api import Api


@pytest.mark.parametrize(
    ("limit", "reason", "code"), [("max_queue_time", "expired", "JOB_EXPIRED"), ("deadline", "deadline", "JOB_TIMEOUT")]
)
async def test_its_error_is_coded(each_api: Api, limit: str, reason: str, code: str) -> None:
    limits: dict[str, Any] = {limit: timedelta(seconds=1)}
    job_id = await each_api.env.enqueue(**limits)
    await each_api.env.advance(timedelta(seconds=2))
    assert len(await each_api.env.driver.expire()) == 1
    shown = (await each_api.client.get(f"/v1/jobs/{job_id}")).json()
    Job.model_validate(shown)
    assert (shown["state"], shown["state_reason"], shown["error"]["code"]) == ("dead", reason, code)
    result = await each_api.client.get(f"/v1/jobs/{job_id}/result")
    assert result.status_code == 409
    assert (result.json()["code"], result.json()["error"]["code"]) == ("JOB_FAILED", code)
