"""What the edge has learnt about a request before it reaches a route, and the scopes a route asks for.

Every route declares `Needs(...)`, or is one of the probes; a test walks the routes and refuses one without. The edge
has authenticated by then, so a route without a marker would still not be open to strangers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias, cast

from fastapi import Depends, Request
from starlette.types import Scope as AsgiScope

from ..domain.errors import Forbidden
from .auth import Identity, Scope
from .problems import RequestFacts

SCOPE_KEY = "outlast.caller"

# The paths that answer strangers: what a load balancer and a kubelet ask.
OPEN_PATHS = frozenset({"/livez", "/readyz", "/startupz"})
# And below it what every problem document points at: words that are the same for everybody.
PROBLEMS = "/problems/"

# Below it are the pages for people, who are known by a cookie and not by a header: the dashboard lets them in itself.
PAGES = "/ui"
# It leads to the page that describes the API, and says nothing itself.
REFERENCE = "/docs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and under which ids. `identity` is None on the open paths and on the pages."""

    facts: RequestFacts
    identity: Identity | None
    traceparent: str | None

    @property
    def key_id(self) -> str | None:
        """Give what stands for the caller's key through all its secrets; None on the open paths."""
        return None if self.identity is None else self.identity.key_id


def caller_of(scope: AsgiScope) -> Caller:
    """Give what the edge noted down."""
    return cast("Caller", scope[SCOPE_KEY])


def route_path(scope: AsgiScope) -> str:
    """Give the path below the one the application is mounted under."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path.removeprefix(root) if root and path.startswith(root + "/") else path


def owner_of(identity: Identity) -> str:
    """Give the caller as requests are counted and their keys kept: no two are the same."""
    return f"{identity.key_id}/{identity.tenant or ''}"


def is_open_path(path: str) -> bool:
    """Say whether the edge lets strangers pass: to probes, to words on errors, to pages with a door of their own."""
    return path in OPEN_PATHS or path in {PAGES, REFERENCE} or path.startswith((f"{PAGES}/", PROBLEMS))


class Needs:
    """A dependency: the caller must hold these scopes. Gives the identity.

    `about` names what is no matter of one queue alone, and so is kept from keys that are bound to queues. A route that
    acts on one queue or its jobs leaves it out, and checks the queue once it knows it.
    """

    def __init__(self, *scopes: Scope, about: str | None = None) -> None:
        self.scopes = scopes
        self.about = about

    async def __call__(self, request: Request) -> Identity:
        """Give the caller's identity. Raises `FORBIDDEN` when a scope is missing."""
        identity = caller_of(request.scope).identity
        assert identity is not None, "the edge authenticates every path that declares a scope"  # noqa: S101 - see above
        identity.check(*self.scopes)
        if self.about is not None:
            identity.check_every_queue(self.about)
        return identity


def visible_tenant(identity: Identity, asked: str | None) -> str | None:
    """Give the tenant a caller sees: the one it asks for, else the one it may act for; None for all of them.

    Raises:
        Forbidden: it asks for one it may not act for.
    """
    if identity.tenant is not None and asked not in (None, identity.tenant):
        raise Forbidden(f"the key may not see the tenant {asked!r}", fix="leave `tenant` out, or use a key of it")
    return identity.tenant or asked


AnyCaller: TypeAlias = Annotated[Identity, Depends(Needs())]
Reader: TypeAlias = Annotated[Identity, Depends(Needs(Scope.JOBS_READ))]
PayloadReader: TypeAlias = Annotated[Identity, Depends(Needs(Scope.JOBS_READ, Scope.PAYLOAD_READ))]
Writer: TypeAlias = Annotated[Identity, Depends(Needs(Scope.JOBS_WRITE))]
Operator: TypeAlias = Annotated[Identity, Depends(Needs(Scope.OPERATE))]
ScheduleOperator: TypeAlias = Annotated[Identity, Depends(Needs(Scope.OPERATE, about="a schedule"))]
ProcessOperator: TypeAlias = Annotated[Identity, Depends(Needs(Scope.OPERATE, about="a process"))]
TenantOperator: TypeAlias = Annotated[Identity, Depends(Needs(Scope.OPERATE, about="all dead letters of a tenant"))]
LimitOperator: TypeAlias = Annotated[Identity, Depends(Needs(Scope.OPERATE, about="a limit of a job type"))]
EventWriter: TypeAlias = Annotated[Identity, Depends(Needs(Scope.JOBS_WRITE, about="an event"))]
Admin: TypeAlias = Annotated[Identity, Depends(Needs(Scope.ADMIN))]
