"""The README's first five minutes, command by command, as a person would type them."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.process.test_dev import AGAIN_SECONDS, ANSWERS_SECONDS, answering, dev, place, start
from tests.support.processes import Fleet, eventually
from tests.support.source import CHECKOUT

pytestmark = [pytest.mark.process, pytest.mark.postgres, pytest.mark.timeout(180)]

__all__ = ["dev", "place"]


def commands() -> list[list[str]]:
    """Give the commands of the section, block by block."""
    section = (CHECKOUT / "README.md").read_text().partition("\n## The first five minutes\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return [[line for line in block.splitlines() if line] for block in blocks]


async def typed(command: str, *, at: str, job_id: str = "") -> dict[str, Any]:
    """Run one in a shell, the address and the id filled in, and give the JSON it prints."""
    assert command.startswith("curl -s localhost:8080/"), command
    line = command.replace("localhost:8080", at).replace("/ID/", f"/{job_id}/")
    child = await asyncio.create_subprocess_exec("sh", "-c", line, stdout=asyncio.subprocess.PIPE)
    out, _ = await child.communicate()
    assert child.returncode == 0, line
    found: dict[str, Any] = json.loads(out)
    return found


async def test_the_first_five_minutes(dev: Fleet, place: Path) -> None:
    (enqueue,), (steps,), (attempts, result), (timeline,) = commands()
    first = start(dev, place)
    async with answering(first, ANSWERS_SECONDS) as client:
        at = client.base_url.netloc.decode()
        job_id = (await typed(enqueue, at=at))["id"]

        async def packs() -> bool:
            return len((await typed(steps, at=at, job_id=job_id))["items"]) == 1

        await eventually(packs, "its first step is recorded")
        (number,) = (await typed(steps, at=at, job_id=job_id))["items"]
    first.terminate()
    assert await first.gone() == 0, first.text
    second = start(dev, place)
    async with answering(second, AGAIN_SECONDS) as client:
        at = client.base_url.netloc.decode()
        (interrupted,) = (await typed(attempts, at=at, job_id=job_id))["items"]
        assert (interrupted["outcome"], interrupted["counted"]) == ("interrupted", False)
        done = await typed(result, at=at, job_id=job_id)
        assert (done["state"], done["result"]["number"], done["result"]["started"]) == ("done", number["value"], 2)
        spans = (await typed(timeline, at=at, job_id=job_id))["spans"]
        assert [span["name"] for span in spans if span["replayed"]] == ["number"]
    second.terminate()
    assert await second.gone() == 0, second.text
