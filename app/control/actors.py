"""Who did something, as callers of one tenant may know it: their own keys by name, and everybody else as `operator`.

What belongs to nobody alone is acted on by keys of every tenant, by keys for all of them and from command lines. Their
names say who else uses the service and who runs it, so they are told only to whoever acts for all tenants. Called by
what shows a name of somebody who acted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..domain.api_key import KeyId
from ..drivers.api_keys import KeyStore
from .guard import BOOTSTRAP_IDENTITY

# What a tenant is told instead of a name that is not its own.
OPERATOR = "operator"

# A key's name ends in its id, whatever its label is.
_ID = re.compile(r"\(([0-9a-f]{16})\)$")


class Actors:
    """Tells whose names a tenant may know. `store` has the API keys, those that are over too."""

    def __init__(self, store: KeyStore | None) -> None:
        self._store = store

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
