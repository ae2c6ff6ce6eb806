"""No input makes the service fail: whatever arrives, the answer is coded and below 500, or 501."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote_from_bytes

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.http.api import Api, job_type
from tests.support.drivers import NAME, memory_env

ODD_TEXT = st.text(st.characters(codec=None), max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | ODD_TEXT
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ODD_TEXT, inner, max_size=4), max_leaves=8
)
FIELDS = st.sampled_from([
    "queue", "priority", "run_at", "delay_ms", "max_attempts", "timeout_ms", "idempotency_key", "on_conflict",
    "dedupe_for_ms", "tags", "meta", "parent_id", "callback", "reason", "mode", "from_step", "input_patch",
])  # fmt: skip
BODIES = st.one_of(
    st.binary(max_size=60),
    VALUES.map(lambda value: json.dumps(value).encode()),
    st.builds(
        lambda fields, payload: json.dumps({"name": NAME, "payload": payload, **fields}).encode(),
        st.dictionaries(FIELDS | ODD_TEXT, VALUES, max_size=3),
        VALUES,
    ),
)
SEGMENT = st.binary(max_size=10).map(quote_from_bytes)
PATHS = st.builds(
    lambda base, segment, end: f"{base}/{segment}{end}",
    st.sampled_from(["/v1/jobs", "/v1/queues", "/v1/job-types", "/v1/audit", "/v1", "/problems", ""]),
    SEGMENT,
    st.sampled_from(["", "/attempts", "/result", "/cancel", "/retry", "/run-now", "/duplicate", "/pause", "/resume"]),
)
QUERIES = st.lists(
    st.tuples(
        st.sampled_from(["state", "name", "queue", "tenant", "limit", "cursor", "sort", "x", "actor", "reason"])
        | SEGMENT,
        SEGMENT,
    ),
    max_size=3,
).map(lambda pairs: "&".join(f"{name}={value}" for name, value in pairs))
HEADERS = st.lists(
    st.tuples(
        st.sampled_from([
            b"prefer", b"traceparent", b"if-none-match", b"if-match", b"x-request-id", b"content-type",
            b"content-encoding", b"origin", b"authorization", b"content-length", b"accept",
        ]),
        st.binary(max_size=20),
    ),
    max_size=2,
)  # fmt: skip
REQUESTS = st.tuples(
    st.sampled_from(["GET", "POST", "POST", "PUT", "PATCH", "DELETE", "HEAD"]),
    st.sampled_from(["/v1/jobs", "/v1/jobs"]) | PATHS,
    QUERIES,
    BODIES,
    HEADERS,
)


# A failure names its request; twenty at a time take too long to be made smaller.
@settings(
    max_examples=15, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
@given(st.lists(REQUESTS, min_size=20, max_size=20))
def test_no_request_makes_the_service_fail(
    requests: list[tuple[str, str, str, bytes, list[tuple[bytes, bytes]]]],
) -> None:
    async def send_all() -> None:
        async with memory_env() as env:
            api = Api(env)
            await env.driver.publish_job_types([job_type()])
            async with api.client:
                for method, path, query, body, headers in requests:
                    sent = (method, f"{path}?{query}", body, headers)
                    response = await api.client.request(
                        method, sent[1], content=body, headers=[(b"content-type", b"application/json"), *headers]
                    )
                    assert response.status_code < 500 or response.status_code == 501, sent
                    assert response.headers["x-request-id"]
                    if response.status_code >= 400 and method != "HEAD":
                        assert response.json()["code"], sent
                assert (await api.client.get("/v1/jobs?limit=200")).status_code == 200
                assert api.probe.of("request.failed") == []

    asyncio.run(send_all())
