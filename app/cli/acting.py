"""Who acts from a command line, for the audit: the account that runs the command, and the reason it was given."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from ..domain.audit import MAX_ACTOR_CHARS, Acting
from ..domain.errors import RequestInvalid
from ..domain.text import MAX_KEY_CHARS, is_printable


def _checked(reason: str | None) -> str | None:
    if reason is not None and not is_printable(reason, MAX_KEY_CHARS):
        raise RequestInvalid(
            "--reason cannot be kept as it is", fix=f"write 1 to {MAX_KEY_CHARS} printable characters on one line"
        )
    return reason


Reason: TypeAlias = Annotated[str | None, typer.Option(help="Why; kept in the audit.", callback=_checked)]


def acting(reason: str | None) -> Acting:
    """Give who acts, and why."""
    return Acting(actor=actor(), reason=reason)


def actor() -> str:
    """Give `cli:` and the account's name; `cli` where the account has none."""
    import getpass

    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as in some containers
        return "cli"
    return f"cli:{name}"[:MAX_ACTOR_CHARS] if is_printable(name) else "cli"
