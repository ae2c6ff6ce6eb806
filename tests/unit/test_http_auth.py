from __future__ import annotations

from pathlib import Path

import pytest

from app.control.guard import Guard
from app.domain.errors import Forbidden, SettingsInvalid, Unauthenticated
from app.drivers.memory.driver import MemoryDriver
from app.http.auth import Identity, Scope, authenticate, check_way_in, is_loopback, read_key_file

EVERY_INTERFACE = "0.0.0.0"  # noqa: S104 - what is to be refused
KEY = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_loopback_is_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        EVERY_INTERFACE,
        "::",
        "",
        "10.0.0.1",
        "example.com",
        "localhost.example.com",
        "127.0.0.1.example.com",
        "1270.0.1",
    ],
)
def test_everything_else_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(SettingsInvalid, match="API_KEY_FILE"):
        check_way_in(host=host, has_key=False, has_store=False, is_dev=True)


def test_without_a_key_only_dev_serves_on_loopback() -> None:
    assert check_way_in(host="127.0.0.1", has_key=False, has_store=False, is_dev=True)
    with pytest.raises(SettingsInvalid, match="API_KEY_FILE"):
        check_way_in(host="127.0.0.1", has_key=False, has_store=False, is_dev=False)


@pytest.mark.parametrize("host", ["127.0.0.1", EVERY_INTERFACE])
@pytest.mark.parametrize("is_dev", [True, False])
async def test_a_key_is_demanded_wherever_there_is_one(host: str, is_dev: bool) -> None:
    assert not check_way_in(host=host, has_key=True, has_store=False, is_dev=is_dev)
    with pytest.raises(Unauthenticated):
        await authenticate(Guard(KEY), [])


@pytest.mark.parametrize(
    ("host", "is_dev", "is_open"),
    [("127.0.0.1", True, True), ("127.0.0.1", False, False), (EVERY_INTERFACE, True, False), ("", False, False)],
)
def test_a_store_of_keys_is_a_way_in(host: str, is_dev: bool, is_open: bool) -> None:
    assert check_way_in(host=host, has_key=False, has_store=True, is_dev=is_dev) is is_open


async def test_a_store_without_a_key_in_force_lets_nobody_in() -> None:
    driver = MemoryDriver()
    await driver.open()
    guard = Guard(None, store=driver.api_keys)
    with pytest.raises(SettingsInvalid, match="no API key in force"):
        await guard.check_keys()
    await Guard(KEY, store=driver.api_keys).check_keys()
    await Guard(None).check_keys()


async def test_the_bootstrap_key_may_do_everything_for_the_default_tenant() -> None:
    identity = await authenticate(Guard(KEY), [b"Bearer " + KEY.encode()])
    assert (identity.tenant, identity.key_id) == ("default", "bootstrap")
    assert identity.scopes == frozenset(Scope)
    identity.check(*Scope)


async def test_the_open_service_may_do_everything_for_everybody() -> None:
    assert (await authenticate(Guard(None), [])).tenant is None


def test_a_missing_scope_is_named_with_the_way_to_one() -> None:
    reader = Identity(name="reader", tenant="default", scopes=frozenset({Scope.JOBS_READ}))
    reader.check(Scope.JOBS_READ)
    with pytest.raises(Forbidden, match="operate") as caught:
        reader.check(Scope.JOBS_READ, Scope.OPERATE)
    assert "--scope operate" in caught.value.fix


def test_a_key_is_not_kept_as_it_is() -> None:
    assert KEY not in repr(vars(Guard(KEY)))


def test_a_caller_bound_to_queues_acts_on_those_alone() -> None:
    bound = Identity(name="mail", tenant="default", scopes=frozenset(Scope), queues=frozenset({"mail"}))
    bound.check_queue("mail")
    with pytest.raises(Forbidden, match="slow"):
        bound.check_queue("slow")
    with pytest.raises(Forbidden, match="bound to queues"):
        bound.check_every_queue("a schedule")


def test_a_key_file_holds_one_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    assert read_key_file(file) == KEY


@pytest.mark.parametrize(
    "content", ["", "\n", "short", f"{KEY} {KEY}", f"{KEY}\n{KEY}", "k" * 513, f"{KEY}é", f"{KEY}\x00"]
)
def test_a_file_that_holds_no_key_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "key"
    file.write_text(content)
    with pytest.raises(SettingsInvalid) as caught:
        read_key_file(file)
    assert KEY not in str(caught.value)


def test_a_key_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="FileNotFoundError"):
        read_key_file(tmp_path / "none")
