"""`outlast drain`: let the process behind an admin listener leave, wait for its end, or see how far it is.

Made for this machine: a pod's `preStop`, a shell beside the process. Speaks to the admin listener alone, never to the
store, so that it works while the store is away.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .report import FAILURE, TIMED_OUT, UNAVAILABLE, fail, say

if TYPE_CHECKING:
    from urllib.error import HTTPError

drain = typer.Typer()

Document = dict[str, Any]

_AdminPort = Annotated[
    int | None, typer.Option(help="Port of the process's probes; OUTLAST_ADMIN_BIND without it.", min=1, max=65_535)
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_POLL_SECONDS = 0.2
_ANSWER_SECONDS = 5.0
_MARGIN_SECONDS = 5.0  # past the deadline a watchdog has ended the process
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - where it listens, asked for here


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What was said before the subcommand, which counts unless it is said again after it."""

    admin_port: int | None
    as_json: bool


@drain.callback(invoke_without_command=True)
def begin(
    ctx: typer.Context,
    *,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the process's end; exit code 3 without.")] = False,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait; 5 more than the drain has left without it.", min=0)
    ] = None,
    admin_port: _AdminPort = None,
    as_json: _Json = False,
) -> None:
    """Let the process on this machine leave, as SIGTERM would; one that leaves already goes on."""
    if ctx.invoked_subcommand is not None:
        if wait or timeout is not None:
            raise typer.BadParameter("--wait and --timeout ask for a drain, and a subcommand asks for none")
        ctx.obj = _Given(admin_port=admin_port, as_json=as_json)
        return
    url = _address(admin_port)
    document = _ask(url, method="POST")
    if document is None:
        raise _nobody(url)
    if wait:
        document = _wait(url, document, timeout, as_json=as_json)
    _show(document, as_json=as_json)


@drain.command()
def status(ctx: typer.Context, *, admin_port: _AdminPort = None, as_json: _Json = False) -> None:
    """Say how far the process on this machine is with leaving."""
    before: _Given = ctx.obj
    url = _address(before.admin_port if admin_port is None else admin_port)
    document = _ask(url)
    if document is None:
        raise _nobody(url)
    _show(document, as_json=as_json or before.as_json)


def _wait(url: str, document: Document, timeout: float | None, *, as_json: bool) -> Document:
    """Watch until nobody answers any more; gives what was seen last."""
    seconds = (document["remaining_ms"] or 0) / 1000 + _MARGIN_SECONDS if timeout is None else timeout
    deadline = time.monotonic() + seconds
    last = ""
    while True:
        if (words := _in_words(document)) != last:
            say(words)
            last = words
        if time.monotonic() >= deadline:
            say(f"still there after {seconds:g} s")
            _show(document, as_json=as_json)
            raise typer.Exit(TIMED_OUT)
        time.sleep(_POLL_SECONDS)
        answered = _ask(url)
        if answered is None:
            return document | {"state": "stopped", "remaining_ms": 0, "in_flight": [], "in_flight_count": 0}
        document = answered


def _show(document: Document, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(document))
        return
    print(_in_words(document))
    for run in document["in_flight"]:
        heard = "has heard" if run["acknowledged"] else "has not heard"
        told = "" if run["told_ms"] is None else f", told {run['told_ms'] / 1000:.1f} s ago, {heard}"
        print(f"  {run['job_type']} {run['job_id']}{told}")


def _in_words(document: Document) -> str:
    held = document["in_flight_count"]
    if document["state"] == "running":
        return f"{document['role']}: running, {held} in flight"
    counts = ", ".join(f"{document[name]} {name}" for name in ("completed", "interrupted", "abandoned"))
    left = "" if document["remaining_ms"] is None else f", {document['remaining_ms'] / 1000:.0f} s left"
    phase = f" ({document['phase']})" if document["state"] == "draining" else ""
    return f"{document['role']}: {document['state']}{phase}, {document['reason']}{left}, {held} in flight, {counts}"


def _address(admin_port: int | None) -> str:
    from ..settings import Settings

    host, _, port = Settings.read().admin_bind.rpartition(":")
    return f"http://{_EVERYWHERE.get(host, host)}:{port if admin_port is None else admin_port}/v1/drain"


def _ask(url: str, *, method: str = "GET") -> Document | None:
    """Give the answer of the admin listener, None when nobody listens there."""
    from urllib.error import HTTPError, URLError
    from urllib.request import ProxyHandler, Request, build_opener

    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(Request(url, method=method), timeout=_ANSWER_SECONDS) as response:  # noqa: S310 - http only
            document: Document = json.load(response)
            return document
    except HTTPError as error:
        cause, fix = _refusal(error)
        fail(f"{url} answered {error.code}{cause}", fix=fix)
        raise typer.Exit(FAILURE) from error
    except (URLError, OSError, ValueError):
        return None


def _refusal(error: HTTPError) -> tuple[str, str]:
    """Give what a problem document says; whoever answers without one is no admin listener."""
    try:
        document = json.load(error)
        return f": {document['detail']}", str(document["fix"])
    except (OSError, ValueError, LookupError, TypeError):
        return "", "name the admin port of an Outlast process on this very machine"


def _nobody(url: str) -> typer.Exit:
    fail(f"no process answers at {url}", fix="name its admin port with --admin-port or OUTLAST_ADMIN_BIND")
    sys.stderr.flush()
    return typer.Exit(UNAVAILABLE)
