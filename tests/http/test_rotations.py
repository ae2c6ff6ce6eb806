"""Rotations of keys that say which secret they replace: repeated after a lost answer, they end nothing."""

from __future__ import annotations

from tests.http.api import KEY, Api, code_of
from tests.http.test_api_keys import made, with_key
from tests.support.drivers import DriverEnv


async def test_a_rotation_that_says_what_it_replaces_ends_nothing_when_repeated(env: DriverEnv) -> None:
    api = Api(env, key=KEY)
    async with api.client:
        key = await made(api)
        path = f"/v1/api-keys/{key['id']}/rotate"
        wanted = {"overlap_ms": 3_600_000, "replaces": key["last4"]}
        second = await api.client.post(path, json=wanted)
        assert (second.status_code, second.json()["previous_last4"]) == (200, key["last4"])
        repeated = await api.client.post(path, json=wanted)
        assert code_of(repeated) == (412, "PRECONDITION_FAILED")
        assert f"ending in {second.json()['last4']}" in repeated.json()["detail"]
        for one in (key, second.json()):
            async with with_key(api, one) as client:
                assert (await client.get("/v1/jobs")).status_code == 200
        for none in ("9C1E", "", 1, "9c1e1"):
            refused = await api.client.post(path, json={"replaces": none})
            assert code_of(refused) == (422, "REQUEST_INVALID")
            assert refused.json()["errors"][0]["pointer"] == "/replaces"
