"""Every setting of a process, read from `OUTLAST_…` variables once, at the composition root.

Frozen values with their units in the names. Only the composition root and `cli` import this; everything else is handed
what it needs. A value that cannot work is refused here, with the arithmetic, before anything starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from .domain.errors import SettingsInvalid

PREFIX = "OUTLAST_"
_SCHEMA = re.compile(r"^[a-z_][a-z0-9_]{0,40}$")
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Days = Annotated[float, Field(gt=0, le=3_650)]


class Settings(BaseSettings):
    """The settings of one process.

    Defaults are those of a production worker; `outlast dev` overrides what it manages itself.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True, populate_by_name=True
    )

    database_url: str | None = Field(
        default=None,
        description="Where jobs are kept: `postgresql://user@host/db`; `memory://` dies with its process.",
        repr=False,
    )
    listen_url: str | None = Field(
        default=None,
        description="A direct address for LISTEN when DATABASE_URL goes through a pooler; without it polling.",
        repr=False,
    )
    outbox_url: str | None = Field(
        default=None,
        description="Where your application stages jobs, when that is another database than DATABASE_URL.",
        repr=False,
    )
    db_schema: str = Field(
        default="outlast", alias="OUTLAST_SCHEMA", description="The database schema that holds all of Outlast's tables."
    )
    pool_size: int = Field(
        default=10,
        ge=1,
        le=1_000,
        description="Database connections of one process; LISTEN, NOTIFY and heartbeat are not counted.",
    )
    jobs: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Modules that declare job types and schedules, separated by commas."
    )
    queues: str = Field(
        default="default",
        description="Queues a worker serves, each with the number of its jobs it may run at once: `mail:10,default`.",
    )
    concurrency: int = Field(default=10, ge=1, le=10_000, description="Jobs one worker runs at once.")
    processes: int = Field(
        default=1, ge=1, le=256, description="Worker processes that `outlast worker` starts and keeps."
    )
    lease_seconds: Seconds = Field(default=30.0, description="How long a silent worker keeps its claims.")
    heartbeat_seconds: Seconds = Field(
        default=5.0, description="How often a worker renews its lease; at most a third of it."
    )
    sweep_seconds: Seconds = Field(
        default=5.0, description="How often a worker looks for lost claims and expired jobs."
    )
    poll_seconds: float | None = Field(
        default=None,
        gt=0,
        le=3_600,
        description="How often an idle worker looks for work. Unset: 10 s while LISTEN lives, 1 s without.",
    )
    loop_stall_seconds: Seconds = Field(
        default=60.0, description="How long a blocked event loop is borne before the worker exits with 75."
    )
    drain_seconds: Seconds = Field(
        default=25.0, description="From SIGTERM to the end of the process, whatever its jobs do."
    )
    grace_seconds: float | None = Field(
        default=None,
        gt=0,
        le=86_400,
        description="What your platform leaves a process from SIGTERM to SIGKILL: `outlast doctor` measures the drain"
        " by it. Unset: not known.",
    )
    cancel_grace_seconds: float = Field(
        default=2.0, ge=0, le=3_600, description="From a run's signal to the cancellation of its task."
    )
    start_seconds: Seconds = Field(
        default=60.0,
        description="How long a starting process waits for its database before it exits with 69.",
    )
    retention_done_days: Days = Field(default=7.0, description="How long done and cancelled jobs are kept.")
    retention_dead_days: Days = Field(default=30.0, description="How long dead letters are kept.")
    source_retention_days: Days = Field(
        default=90.0,
        ge=90,
        description="How long a published row of the outbox is remembered: 90 or more, and not less than any job.",
    )
    event_retention_days: Days = Field(
        default=30.0, description="How long events are kept; longer while a job enqueued before them is not done."
    )
    record_retention_days: Days = Field(
        default=90.0, description="How long reports of drains and rows of workers that have left are kept."
    )
    audit_retention_days: Days = Field(default=365.0, description="How long the audit of operators' actions is kept.")
    purge_seconds: Seconds = Field(
        default=60.0, description="The least time between two rounds over rows that may be over, in the whole fleet."
    )
    payload_max_bytes: int = Field(
        default=262_144, ge=1_024, le=16_777_216, description="The largest payload accepted, in bytes of UTF-8."
    )
    result_max_bytes: int = Field(
        default=1_048_576, ge=1_024, le=67_108_864, description="The largest result stored, in bytes of UTF-8."
    )
    payload_key_file: Path | None = Field(
        default=None,
        description="A file with the keys that payloads, results and values are encrypted with in the database; the"
        " newest first, older ones below it. Every process needs the same. Unset: they lie there as they are.",
    )
    payload_codec: str | None = Field(
        default=None,
        description="A codec of your own in the place of the keys, as `module:attribute`: a `PayloadCodec`, or what"
        " gives one when it is called.",
    )
    api_rate_per_second: float | None = Field(
        default=None,
        gt=0,
        le=1_000_000,
        description="How many requests a second one key may send to one process, twice as many at once. Unset: any.",
    )
    api_bytes_per_second: float | None = Field(
        default=None,
        gt=0,
        le=1_000_000_000,
        description="How many bytes of bodies a second one key may send to one process, ten times as many at once."
        " Unset: any.",
    )
    api_waiting_per_tenant: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="How many ready and delayed jobs a tenant may have before the API takes in no more of it. Unset:"
        " any.",
    )
    bind: str = Field(default="127.0.0.1:8080", description="Address of the HTTP API.")
    admin_bind: str = Field(
        default="127.0.0.1:8081", description="Address of probes and metrics, answered by a thread of its own."
    )
    api_key_file: Path | None = Field(
        default=None,
        description="A file with a bootstrap key (all scopes, tenant `default`) for the time before keys are made.",
    )
    callback_key_file: Path | None = Field(
        default=None,
        description="A file with the master key that secrets of webhooks are derived from; older ones below it. Without"
        " it there are no webhooks to be made, and this worker delivers nothing.",
    )
    callback_allow: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Hosts and networks that webhooks may call though they are private, or without TLS:"
        " `hooks.internal,10.1.2.0/24`.",
    )
    callback_queue: str = Field(
        default="default", description="The queue that carries deliveries; some worker with the master key serves it."
    )
    callback_timeout_seconds: Annotated[float, Field(gt=0, le=120)] = Field(
        default=5.0, description="How long one try to deliver may take."
    )
    code_version: str = Field(
        default="", description="What this code calls itself on workers and attempts. Unset: the version of Outlast."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="`json`, `console`, or `auto`: console on a terminal."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least level logged."
    )

    @field_validator("jobs", "callback_allow", mode="before")
    @classmethod
    def _split_jobs(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("db_schema")
    @classmethod
    def _schema_is_plain(cls, value: str) -> str:
        if not _SCHEMA.match(value):
            raise ValueError("use lower-case letters, digits and underscores")
        return value

    @model_validator(mode="after")
    def _heartbeat_fits_lease(self) -> Settings:
        if self.heartbeat_seconds > self.lease_seconds / 3:
            raise ValueError(
                f"HEARTBEAT_SECONDS={self.heartbeat_seconds:g} is more than a third of "
                f"LEASE_SECONDS={self.lease_seconds:g}:"
                f" one missed renewal could cost the lease; at most {self.lease_seconds / 3:g}"
            )
        return self

    @model_validator(mode="after")
    def _sources_outlive_jobs(self) -> Settings:
        longest = max(self.retention_done_days, self.retention_dead_days)
        if self.source_retention_days < longest:
            raise ValueError(
                f"SOURCE_RETENTION_DAYS={self.source_retention_days:g} is less than the {longest:g} days for which"
                f" ended jobs are kept: a row published again could make a second job; set it to {longest:g} or more"
            )
        return self

    @classmethod
    def read(cls, **overrides: object) -> Settings:
        """Read the environment; keyword arguments (flags) win. Raises `SETTINGS_INVALID` naming each bad variable."""
        given = {name: value for name, value in overrides.items() if value is not None}
        try:
            return cls(**given)  # type: ignore[arg-type]  # values are validated by the model, whatever their type
        except ValidationError as exc:
            raise _refusal(exc) from exc


class Shown(NamedTuple):
    """A setting as people may see it, by its variable. `is_set`: it is not the default."""

    variable: str
    value: str
    is_set: bool


def shown(settings: Settings) -> tuple[Shown, ...]:
    """Give every setting of a process; of addresses only where they lead, so that no password is among them."""
    names = environment_names()
    found = []
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        text = without_secrets(value) if name.endswith("_url") and value else _text(value)
        found.append(Shown(names[name], text, value != field.default))
    return tuple(found)


def without_secrets(url: str) -> str:
    """Give a URL with its user, host and path; without its password and the values of its query.

    What cannot be told apart is not shown at all.
    """
    scheme, colon, _ = url.partition("://")
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    try:
        is_plain = parts.port is None or parts.port > 0
    except ValueError:
        is_plain = False
    if not colon or not is_plain or "@" in parts.path + parts.fragment or "@" in parts.query.partition("=")[0]:
        return f"{scheme}://…" if colon else "…"
    user = f"{parts.username}@" if parts.username else ""
    return f"{scheme}://{user}{host}{parts.path}{'?…' if parts.query else ''}"


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(str(each) for each in value)
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def address_of(bind: str, variable: str) -> tuple[str, int]:
    """Read `host:port`. Raises `SETTINGS_INVALID` naming the variable."""
    host, colon, port = bind.rpartition(":")
    if not colon or not port.isdecimal() or not 0 <= int(port) < 1 << 16:
        raise SettingsInvalid(f"{variable}={bind} is not host:port", fix=f"write {variable}=127.0.0.1:8080, say")
    return host or "0.0.0.0", int(port)  # noqa: S104 - `:8080` means every interface, and then a key is asked for


def environment_names() -> dict[str, str]:
    """Give the variable of each field."""
    return {name: field.alias or f"{PREFIX}{name.upper()}" for name, field in Settings.model_fields.items()}


def unknown_variables(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Name `OUTLAST_…` variables that no setting reads: a typing error is seen and not silently ignored."""
    known = set(environment_names().values())
    return tuple(
        sorted(name for name in (environ or dict(os.environ)) if name.startswith(PREFIX) and name not in known)
    )


def _refusal(exc: ValidationError) -> SettingsInvalid:
    names = environment_names()
    parts = []
    for error in exc.errors(include_url=False, include_input=False):
        location = str(error["loc"][0]) if error["loc"] else ""
        message = error["msg"].removeprefix("Value error, ")
        parts.append(f"{names.get(location, location)}: {message}" if location else message)
    return SettingsInvalid(
        "; ".join(parts), fix="correct the variables named; `docs/reference/settings.md` lists them all"
    )
