"""`outlast keys`: who may speak to the HTTP API, straight on the store.

Whoever can open the database makes the first key. A token is printed once, on stdout, and never again.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..domain.api_key import KeyView, Scope
from ..domain.errors import RequestInvalid
from ..domain.issued import DEFAULT_OVERLAP
from ..domain.job import DEFAULT_TENANT
from .acting import Reason, acting
from .durations import instant, overlap_of, span
from .jobs_print import print_rows, safe, time_of
from .report import say
from .store import with_keys

if TYPE_CHECKING:
    from ..control.keys import Issued

keys = typer.Typer(no_args_is_help=True)

_Db = Annotated[str | None, typer.Option("--db", help="Database address; OUTLAST_DATABASE_URL without it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Id = Annotated[str, typer.Argument(help="The key's id: what stands between the underscores of its token.")]
_COLUMNS = ("id", "label", "tenant", "scopes", "queues", "ends in", "last used", "state")


@keys.command("create")
def create(
    *,
    label: Annotated[str, typer.Option(help="Who uses it; shown in lists and in the audit.")],
    scopes: Annotated[list[Scope], typer.Option("--scope", help="What it may do; may be given again.")],
    tenant: Annotated[str | None, typer.Option(help=f"Whom it acts for; `{DEFAULT_TENANT}` without it.")] = None,
    all_tenants: Annotated[bool, typer.Option("--all-tenants", help="It acts for every tenant.")] = False,
    queues: Annotated[
        list[str] | None, typer.Option("--queue", help="The only queue it may act on; may be given again.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="When it ends: `2027-11-29T00:00:00Z`, or after `90d`; never without it.")
    ] = None,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Make a key and print its token, which is not to be had again."""
    from ..control.keys import KeyOrder

    if all_tenants and tenant is not None:
        raise RequestInvalid("a key is for one tenant or for all", fix="leave out --tenant or --all-tenants")
    lasts = None if expires is None else span(expires)
    order = KeyOrder(
        label=label,
        tenant=None if all_tenants else tenant or DEFAULT_TENANT,
        scopes=frozenset(scopes),
        queues=None if queues is None else frozenset(queues),
        expires_at=None if expires is None or lasts is not None else instant(expires, flag="--expires"),
        lasts=lasts,
    )
    _hand_out(with_keys(db, lambda control: control.create(order, by=acting(reason))), as_json=as_json)


@keys.command("list")
def list_keys(
    *,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one document a line.")] = False,
    db: _Db = None,
) -> None:
    """List keys, the newest first, those that are over too; never a secret."""
    found = with_keys(db, lambda control: control.list(tenant=tenant))
    if as_json:
        for key in found:
            _print_json(key)
    elif found:
        print_rows((_COLUMNS, *(_row(key) for key in found)))
    else:
        say("no keys; `outlast keys create --label NAME --scope admin` makes one")


@keys.command("rotate")
def rotate(
    key_id: _Id,
    *,
    overlap: Annotated[str, typer.Option(help="How long the secret before goes on being taken: `0s`, `1h`, `7d`.")] = (
        f"{DEFAULT_OVERLAP.days}d"
    ),
    replaces: Annotated[
        str | None,
        typer.Option(help="The end of the secret that is meant, as `keys list` shows it; no other one ends."),
    ] = None,
    reason: Reason = None,
    as_json: _Json = False,
    db: _Db = None,
) -> None:
    """Give a key a new secret and print its token; the one before goes on being taken for a while."""
    lasts = overlap_of(overlap)
    _hand_out(
        with_keys(
            db, lambda control: control.rotate(key_id, tenant=None, by=acting(reason), overlap=lasts, replaces=replaces)
        ),
        as_json=as_json,
    )


@keys.command("revoke")
def revoke(key_id: _Id, *, reason: Reason = None, as_json: _Json = False, db: _Db = None) -> None:
    """End a key and all its secrets for good, within five seconds in every process."""
    key = with_keys(db, lambda control: control.revoke(key_id, tenant=None, by=acting(reason)))
    if as_json:
        _print_json(key)
    else:
        say(f"{key.id} ({safe(key.label)}) is revoked, within five seconds everywhere")


def _hand_out(issued: Issued, *, as_json: bool) -> None:
    """Print a token on stdout alone, so that it can be piped into a file; the talk goes to stderr."""
    if as_json:
        _print_json(issued.key, token=issued.token)
        return
    print(issued.token)
    say(f"{issued.key.id} ({safe(issued.key.label)}): keep the token now, it is not shown again")


def _row(key: KeyView) -> tuple[str, ...]:
    return (
        key.id,
        safe(key.label),
        "every" if key.tenant is None else safe(key.tenant),
        ",".join(sorted(key.scopes)),
        "every" if key.queues is None else ",".join(sorted(key.queues)),
        key.last4 if key.previous_last4 is None else f"{key.last4} or {key.previous_last4}",
        "-" if key.last_used_at is None else time_of(key.last_used_at),
        _state(key),
    )


def _state(key: KeyView) -> str:
    if key.revoked_at is not None:
        return f"revoked by {safe(key.revoked_by or '-')} at {time_of(key.revoked_at)}"
    return "in force" if key.expires_at is None else f"until {time_of(key.expires_at)}"


def _print_json(key: KeyView, **more: object) -> None:
    from ..control.keys import key_document
    from ..control.render import render

    sys.stdout.write(render(key_document(key) | more).decode() + "\n")
