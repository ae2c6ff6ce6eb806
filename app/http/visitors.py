"""Who asks the admin listener: this very machine, somebody a proxy speaks for, or a page in a browser.

The listener has no keys. What protects it is where a request comes from, which only looks certain: a browser on this
machine asks from loopback in the name of any page, also of one whose own name was rebound to 127.0.0.1. Decides from
the peer's address and the headers alone. Called by `admin`.
"""

from __future__ import annotations

import re
import socket
from email.message import Message
from ipaddress import ip_address

from ..domain.errors import Forbidden, MediaUnsupported

# What a browser sends with a page's request, and a proxy with somebody else's.
_FOR_OTHERS = ("origin", "sec-fetch-", "forwarded", "via", "x-forwarded-", "x-real-ip", "x-envoy-")
# Not all of 127.0.0.0/8: a mesh's sidecar hands on what it took from the network from another address of it, while a
# browser that asks any of it does so from the first.
_THIS_MACHINE = frozenset({ip_address("127.0.0.1"), ip_address("::1")})
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[^\[\]:/@]+))(?::[0-9]{0,5})?", re.IGNORECASE | re.ASCII)
_JSON = re.compile(r"application/json\s*(?:;.*)?", re.IGNORECASE)


def own_names(bound: str) -> frozenset[str]:
    """Give the names under which this machine may be asked: nobody else can make a page of theirs."""
    return frozenset({"localhost", socket.gethostname().lower(), bound.lower()}) - {""}


def check_host(peer: str, headers: Message, names: frozenset[str]) -> None:
    """Refuse a request from this machine under a name that is not its own: that is a page whose name was rebound.

    From elsewhere any name is welcome: services and their scrapers have names that nobody here knows of. A client
    that sends no `Host` at all is no browser.

    Raises:
        Forbidden: it is none of an address, `localhost`, and `names`.
    """
    hosts = headers.get_all("Host", [])
    if not is_this_machine(peer) or not hosts:
        return
    if len(hosts) > 1 or not _is_own(hosts[0], names):
        raise Forbidden(
            "this machine is answered only under an address, as localhost, and under its own name",
            fix="ask 127.0.0.1 or localhost; let a proxy on this machine send that as Host",
        )


def check_action(peer: str, headers: Message) -> None:
    """Refuse to act for anyone but a program on this machine.

    Raises:
        Forbidden: it comes from another machine, through a proxy, or from a page in a browser.
        MediaUnsupported: it comes with what a page's form sends.
    """
    if not is_this_machine(peer) or any(name.lower().startswith(_FOR_OTHERS) for name in headers):
        raise Forbidden(
            "only a program on this machine may ask for this, no proxy and no web page",
            fix="run `outlast drain` beside the process; from elsewhere use the API, with a key of the scope operate",
        )
    for media_type in headers.get_all("Content-Type", []):
        if not _JSON.fullmatch(media_type.strip()):
            raise MediaUnsupported("the body is not declared as JSON", fix="send no body and no Content-Type")


def is_this_machine(peer: str) -> bool:
    """Say whether an address is this machine's own loopback one."""
    address = ip_address(peer.partition("%")[0])
    return (getattr(address, "ipv4_mapped", None) or address) in _THIS_MACHINE


def _is_own(host: str, names: frozenset[str]) -> bool:
    found = _HOST.fullmatch(host.strip())
    if found is None:
        return False
    literal = found["six"] or found["name"]
    try:
        return ip_address(literal).version == (6 if found["six"] else 4)
    except ValueError:
        return found["six"] is None and found["name"].lower().removesuffix(".") in names
