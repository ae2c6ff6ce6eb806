"""Options of the authors' API that are declared and not built: each refuses where it is used.

Nothing here is accepted and dropped, so a job that relies on one cannot run without it.
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
