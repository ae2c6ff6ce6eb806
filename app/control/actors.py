"""Who did something, as callers of one tenant may know it: their own keys by name, and everybody else as `operator`.

What belongs to nobody alone is acted on by keys of every tenant, by keys for all of them and from command lines. Their
names say who else uses the service and who runs it, so they are told only to whoever acts for all tenants. Called by
what shows a name of somebody who acted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

from ..domain.api_key import KeyId
from ..domain.drain import ASKED_FOR_BY
from ..drivers.api_keys import KeyStore
from .guard import BOOTSTRAP_IDENTITY

# What a tenant is told instead of a name that is not its own.
OPERATOR = "operator"

T = TypeVar("T")

# The fields that name who acted on what belongs to nobody alone: queues, workers, limits and schedules.
FIELDS = ("paused_by", "drain_asked_by", "set_by", "fired_by")

# And those of reasons, in which drains say who asked for them.
REASONS = ("drain_reason", "reason")

# A key's name ends in its id, whatever its label is.
_ID = re.compile(r"\(([0-9a-f]{16})\)$")


class Actors:
    """Tells whose names a tenant may know. `store` has the API keys, those that are over too."""

    def __init__(self, store: KeyStore | None) -> None:
        self._store = store

    async def told(self, tenant: str | None, shown: T) -> T:
        """Give documents, or views, with the names in their `FIELDS` that a tenant may know; all of them without one.

        A view that is given back so is to be looked at: what is compared with a version has the name in it.
        """
        if tenant is None:
            return shown
        own = await self.own(tenant, _named(shown))
        renamed: T = _renamed(shown, own)
        return renamed

    async def own(self, tenant: str, names: Iterable[str]) -> frozenset[str]:
        """Give those of the names that are a tenant's own keys; each that may be one costs a look-up."""
        return frozenset([name for name in set(names) if await self._is_own(tenant, name)])

    async def _is_own(self, tenant: str, name: str) -> bool:
        if name == BOOTSTRAP_IDENTITY.name:
            return tenant == BOOTSTRAP_IDENTITY.tenant
        found = _ID.search(name)
        if found is None or self._store is None:
            return False
        key = await self._store.key(KeyId(found[1]), tenant=tenant)
        return key is not None and key.identity.name == name


def _parts(shown: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  any document
    if isinstance(shown, Mapping):
        yield from shown.items()
    elif isinstance(shown, (list, tuple)):
        yield from (("", each) for each in shown)
    elif is_dataclass(shown):
        yield from ((name, getattr(shown, name)) for name in (*FIELDS, *REASONS) if hasattr(shown, name))


def _named(shown: Any) -> Iterator[str]:  # noqa: ANN401  any document
    for name, value in _parts(shown):
        if name in FIELDS and value is not None:
            yield value
        elif name in REASONS and _says_who(value):
            yield value.removeprefix(ASKED_FOR_BY)
        else:
            yield from _named(value)


def _says_who(reason: object) -> bool:
    return isinstance(reason, str) and reason.startswith(ASKED_FOR_BY)


def _renamed(shown: Any, own: frozenset[str]) -> Any:  # noqa: ANN401  any document
    def of(name: str, value: Any) -> Any:  # noqa: ANN401
        if name in FIELDS and value is not None:
            return value if value in own else OPERATOR
        if name in REASONS and _says_who(value):
            return value if value.removeprefix(ASKED_FOR_BY) in own else f"{ASKED_FOR_BY}{OPERATOR}"
        return _renamed(value, own)

    parts = [(name, of(name, value)) for name, value in _parts(shown)]
    if isinstance(shown, Mapping):
        return dict(parts)
    if isinstance(shown, (list, tuple)):
        return type(shown)(value for _, value in parts)
    return replace(shown, **dict(parts)) if parts else shown
