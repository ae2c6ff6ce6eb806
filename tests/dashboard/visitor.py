"""One visitor of the pages over a driver: follows links, sends forms with their token, reads what is shown."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx

from app.dashboard.app import create_dashboard
from app.http.app import create_app
from app.site import dashboard_services
from tests.http.api import Api, job_type
from tests.support.drivers import DriverEnv

KEY = "k" * 32
HERE = "http://localhost:8080"
_TOKEN = re.compile(r'name="token" value="([0-9a-f]+)"')


class Visitor:
    """A browser without scripts, and the API beside it."""

    def __init__(
        self,
        env: DriverEnv,
        *,
        key: str | None = None,
        config: Sequence[tuple[str, str, bool]] = (),
        is_still: bool = False,
        **overrides: Any,
    ) -> None:
        self.env = env
        self.api = Api(env, key=key, **overrides)
        services = dashboard_services(env.driver, self.api.services, key=key, config=config)
        # For a still picture pages tell ages by the store's clock, which stands.
        services = replace(services, now=env.now) if is_still else services
        self.api.app = create_app(self.api.services, pages=create_dashboard(services))
        self.browser = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.api.app), base_url=HERE, headers={"Sec-Fetch-Site": "same-origin"}
        )

    @asynccontextmanager
    async def there(self) -> AsyncIterator[Visitor]:
        async with self.beside(), self.api.up():
            yield self

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[Visitor]:
        """Be there, with an application that something else brings up."""
        await self.env.driver.publish_job_types([job_type()])
        async with self.browser:
            yield self

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.browser.get(f"/ui{path}", headers=headers)

    async def see(self, path: str) -> str:
        """Give a page that must be there."""
        response = await self.get(path)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        return response.text

    async def token(self) -> str:
        found = _TOKEN.search(await self.see("/"))
        assert found is not None
        return found[1]

    async def send(self, path: str, fields: dict[str, Any] | None = None, **headers: str) -> httpx.Response:
        """Send a form with the token of this visitor's pages."""
        data = {"token": await self.token(), **(fields or {})}
        return await self.browser.post(f"/ui{path}", data=data, headers=headers)

    async def act(self, path: str, fields: dict[str, Any] | None = None) -> str:
        """Send a form that must do something, and give the page it leads to."""
        response = await self.send(path, fields)
        assert response.status_code == 303, response.text
        following = await self.browser.get(response.headers["location"])
        assert following.status_code == 200, following.text
        return following.text
