"""Names of the authors' API that are declared and not built: each refuses where it is used.

Nothing here is accepted and dropped, so a job that relies on a limit cannot run without one.
"""

from __future__ import annotations

from typing import NoReturn

from ..domain.errors import NotImplementedYet


def refuse(what: str, instead: str) -> NoReturn:
    """Refuse something that is not built, with what to do until it is.

    Raises:
        NotImplementedYet: always.
    """
    raise NotImplementedYet(f"{what} is not part of this release", fix=instead)


class Limit:
    """At most `n` jobs of a type (and key) at once, fleet-wide. Not built."""

    def __init__(self, n: int, *, key: str | None = None) -> None:
        refuse(f"Limit({n}, key={key!r})", "leave limits= out and bound the queue's workers instead")


class Rate:
    """At most so many starts per time. Not built."""

    def __init__(self, n: int, *, per: object, key: str | None = None) -> None:
        refuse(f"Rate({n}, per={per!r}, key={key!r})", "leave rate= out and raise RetryAfter from the body instead")
