"""A browser's view of the pages over the memory driver: an application with its door open, and one that is locked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from types import CodeType

import jinja2
import pytest
from jinja2.bccache import Bucket

from app.dashboard import views
from tests.dashboard.visitor import KEY, Visitor
from tests.support.drivers import memory_env


class _Compiled(jinja2.BytecodeCache):
    """Templates that one application of the run has compiled, for the others."""

    def __init__(self) -> None:
        self._code: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._code.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        assert bucket.code is not None
        self._code[bucket.key, bucket.checksum] = bucket.code


@pytest.fixture(scope="session", autouse=True)
def _compiled_once() -> Iterator[None]:
    """Compile each template but once: it is nine tenths of what a page costs an application that shows only one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "Environment", partial(jinja2.Environment, bytecode_cache=_Compiled()))
        yield


@pytest.fixture
async def visitor() -> AsyncIterator[Visitor]:
    async with memory_env() as env, Visitor(env).there() as there:
        yield there


@pytest.fixture
async def stranger() -> AsyncIterator[Visitor]:
    async with memory_env() as env, Visitor(env, key=KEY).there() as there:
        yield there
