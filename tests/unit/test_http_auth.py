from __future__ import annotations

from pathlib import Path

import pytest

from app.domain.errors import Forbidden, SettingsInvalid, Unauthenticated
from app.http.auth import Auth, Identity, Scope, decide_auth, is_loopback, read_key_file

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
        decide_auth(host=host, key=None, is_dev=True)


def test_without_a_key_only_dev_serves_on_loopback() -> None:
    assert decide_auth(host="127.0.0.1", key=None, is_dev=True).is_open
    with pytest.raises(SettingsInvalid, match="API_KEY_FILE"):
        decide_auth(host="127.0.0.1", key=None, is_dev=False)


@pytest.mark.parametrize("host", ["127.0.0.1", EVERY_INTERFACE])
@pytest.mark.parametrize("is_dev", [True, False])
def test_a_key_is_demanded_wherever_there_is_one(host: str, is_dev: bool) -> None:
    auth = decide_auth(host=host, key=KEY, is_dev=is_dev)
    assert not auth.is_open
    with pytest.raises(Unauthenticated):
        auth.authenticate([])


def test_the_bootstrap_key_may_do_everything_for_the_default_tenant() -> None:
    identity = Auth(KEY).authenticate([b"Bearer " + KEY.encode()])
    assert identity.tenant == "default"
    assert identity.scopes == frozenset(Scope)
    identity.check(*Scope)


def test_the_open_service_may_do_everything_for_everybody() -> None:
    assert Auth(None).authenticate([]).tenant is None


def test_a_missing_scope_is_named() -> None:
    reader = Identity(name="reader", tenant="default", scopes=frozenset({Scope.JOBS_READ}))
    reader.check(Scope.JOBS_READ)
    with pytest.raises(Forbidden, match="operate"):
        reader.check(Scope.JOBS_READ, Scope.OPERATE)


def test_a_key_is_not_kept_as_it_is() -> None:
    auth = Auth(KEY)
    assert KEY not in repr(vars(auth))


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
