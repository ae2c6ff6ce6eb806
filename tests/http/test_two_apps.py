"""Applications of one process share their routes and nothing else."""

from __future__ import annotations

from tests.http.api import KEY, Api, code_of, job_type
from tests.support.drivers import NAME, memory_env


async def test_two_applications_of_a_process_have_each_their_own_store_and_key() -> None:
    async with memory_env() as first, memory_env() as second:
        one, other = Api(first), Api(second, key=KEY)
        async with one.client, other.client:
            for env in (first, second):
                await env.driver.publish_job_types([job_type()])
            made = await one.client.post("/v1/jobs", json={"name": NAME, "payload": {}})
            assert made.status_code == 201, made.text
            path = f"/v1/jobs/{made.json()['id']}"

            assert (await one.client.get(path)).json()["id"] == made.json()["id"]
            assert code_of(await other.client.get(path)) == (404, "JOB_NOT_FOUND")
            assert (await other.client.get(path, headers={"authorization": "Bearer no"})).status_code == 401
            assert (await one.client.get(path)).status_code == 200
