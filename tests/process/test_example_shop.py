"""The example: a shop with a package called `app`, on the wheel, whose orders and jobs commit together."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import httpx
import pytest

from app.drivers.postgres.connect import dsn_of
from tests.support.processes import PATIENCE, eventually
from tests.support.source import CHECKOUT

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(120)]

SHOP = CHECKOUT / "examples" / "shop"


@contextmanager
def running(home: Path, log: Path, *words: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module of the environment in the shop's folder, and have it gone afterwards."""
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(home), "PYTHONPATH": str(SHOP)}
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [str(home / "bin" / "python"), "-m", *words],
            cwd=SHOP,
            env=environment | {"PYTHONDONTWRITEBYTECODE": "1"} | variables,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)


async def test_an_order_and_its_job_commit_or_roll_back_together(
    bare_environment: Path, empty_database_url: str, tmp_path: Path
) -> None:
    url = dsn_of(empty_database_url)
    ours = {
        "OUTLAST_DATABASE_URL": url,
        "DATABASE_URL": url,
        "OUTLAST_JOBS": "app.jobs",
        "OUTLAST_ADMIN_BIND": "127.0.0.1:0",
    }
    with running(bare_environment, tmp_path / "migrate.log", "outlast", "migrate", "up", **ours) as migrating:
        assert migrating.wait(PATIENCE) == 0, (tmp_path / "migrate.log").read_text()
    served = tmp_path / "shop.log"
    with running(bare_environment, served, "uvicorn", "app.main:api", "--port", "0", **ours):
        await eventually(lambda: "Uvicorn running on" in served.read_text(), "the shop serves")
        found = re.search(r"http://127\.0\.0\.1:\d+", served.read_text())
        assert found is not None
        async with httpx.AsyncClient(base_url=found[0], timeout=PATIENCE) as shop:
            refused = await shop.post("/orders", json={"item": "castle", "cents": 99_900_000})
            assert refused.status_code == 402, refused.text
            placed = await shop.post("/orders", json={"item": "kettle", "cents": 4_900})
            assert placed.status_code == 201, served.read_text()
            order = placed.json()
            assert (await shop.get(f"/orders/{order['id']}")).json()["state"] == "placed"

            background = tmp_path / "background.log"
            words = ("outlast", "run", "--roles", "worker,relay")
            with running(bare_environment, background, *words, **ours) as outlast:

                async def is_confirmed() -> bool:
                    assert outlast.poll() is None, background.read_text()
                    return bool((await shop.get(f"/orders/{order['id']}")).json()["state"] == "confirmed")

                await eventually(is_confirmed, "the order is confirmed")
            assert outlast.returncode == 0, background.read_text()

    connection = await asyncpg.connect(url)
    try:
        assert await connection.fetchval("select count(*) from orders") == 1
        assert [str(each["id"]) for each in await connection.fetch("select id from outlast.job")] == [order["job_id"]]
        assert await connection.fetchval("select result from outlast.finished") == "true"
    finally:
        await connection.close()
