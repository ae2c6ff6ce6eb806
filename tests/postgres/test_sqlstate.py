"""What a failing database call means: each SQLSTATE and each broken connection as an error of ours."""

from __future__ import annotations

import asyncpg
import pytest
from sqlalchemy import exc as sa

from app.domain.errors import (
    DriverUnavailable,
    Internal,
    JobStateConflict,
    OutlastError,
    RequestInvalid,
    SchemaOutdated,
    SettingsInvalid,
    StoreBusy,
)
from app.drivers.postgres.sqlstate import Contended, translate


def server_error(state: str) -> asyncpg.PostgresError:
    found: asyncpg.PostgresError = asyncpg.PostgresError.new({"C": state, "M": "words of the server"})
    return found


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        *((state, DriverUnavailable) for state in ("08006", "08003", "57P01", "57P02", "57P03", "57014", "25006")),
        *((state, DriverUnavailable) for state in ("25P03", "25P04")),
        *((state, DriverUnavailable) for state in ("53100", "53200", "53300", "58030", "28P01", "3D000")),
        *((state, Contended) for state in ("40001", "40P01")),
        ("55P03", StoreBusy),
        *((state, RequestInvalid) for state in ("22021", "22008", "22003", "23514", "54000")),
        *((state, SchemaOutdated) for state in ("42P01", "3F000", "42703", "42883")),
        ("42501", SettingsInvalid),
        ("42601", Internal),
        ("XX000", Internal),
    ],
)
def test_every_sqlstate_has_its_error(state: str, kind: type[OutlastError]) -> None:
    found = translate(server_error(state))
    assert type(found) is kind
    assert found.fix
    assert state in found.cause
    assert isinstance(found, StoreBusy) is (state in {"40001", "40P01", "55P03"})


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(104, "Connection reset by peer"),
        TimeoutError(),
        sa.TimeoutError("the pool is empty"),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.InternalClientError("got result for unknown protocol state"),
        asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
    ],
)
def test_trouble_with_the_connection_is_driver_unavailable(error: Exception) -> None:
    found = translate(error)
    assert isinstance(found, DriverUnavailable)
    assert found.retryable


def test_contention_that_lasts_is_driver_unavailable_to_callers() -> None:
    assert issubclass(Contended, DriverUnavailable)
    assert Contended.code == "DRIVER_UNAVAILABLE"


@pytest.mark.parametrize("error", [ValueError("mine"), JobStateConflict("cause", fix="fix"), KeyError("x")])
def test_what_is_no_database_error_is_left_alone(error: Exception) -> None:
    assert translate(error) is None


def test_refused_values_are_not_quoted_in_messages() -> None:
    refused = asyncpg.PostgresError.new({"C": "22P02", "M": 'invalid input: "canary"', "D": "canary"})
    found = translate(refused)
    assert found is not None
    assert "canary" not in str(found)
