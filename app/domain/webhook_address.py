"""Which addresses webhooks may call: what a URL must look like, and which networks are nobody's to be called.

Pure rules; names are resolved by whoever sends, which judges every address it is given before it connects to it. Called
by the verbs on webhooks and by the sender.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit

from .errors import CallbackRefused, SettingsInvalid

Address: TypeAlias = IPv4Address | IPv6Address

MAX_URL_CHARS = 2_048
_PORTS = {"http": 80, "https": 443}
# With one of these anywhere, what reads like a host may be a name, and what reads like a port a password.
_OF_USER = re.compile("@|%40", re.IGNORECASE)
# Beside what `is_global` denies: shared and translated ranges, and what carries an address of version 4 inside.
_DENIED = tuple(
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "240.0.0.0/4"),
        *("64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "fec0::/10", "100::/64"),
    )
)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an address leads: scheme, host in lower case, port."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        """Give it as an address of nothing but that: what else a webhook's has may be secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What may be called although it is private, or without TLS: hosts by name, and networks."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def of(cls, words: Iterable[str]) -> Allowed:
        """Read names of hosts, addresses and networks in CIDR notation.

        Raises:
            SettingsInvalid: a word is none of them.
        """
        hosts: set[str] = set()
        networks: list[IPv4Network | IPv6Network] = []
        for word in words:
            try:
                networks.append(ip_network(word))
            except ValueError:
                if "/" in word or not _is_host(word):
                    raise SettingsInvalid(
                        f"OUTLAST_CALLBACK_ALLOW: {word!r} is no host and no network",
                        fix="name hosts and networks such as hooks.internal,10.1.2.0/24",
                    ) from None
                hosts.add(word.lower())
        return cls(hosts=frozenset(hosts), networks=tuple(networks))

    def has_host(self, host: str) -> bool:
        """Say whether a host was named."""
        return host.lower() in self.hosts

    def has(self, address: Address) -> bool:
        """Say whether an address is in one of the networks."""
        return any(address.version == network.version and address in network for network in self.networks)


def origin_of(url: str) -> Origin:
    """Read where an address leads.

    Raises:
        CallbackRefused: it can never be called.
    """
    parts = _parts(url)
    host = (parts.hostname or "").rstrip(".").lower()
    if parts.scheme not in _PORTS:
        raise _refused(url, "is not https", "use an address that begins with https://")
    if not _is_host(host):
        raise _refused(url, "names no host", "use an address such as https://hooks.example.com/jobs")
    if parts.username is not None or parts.password is not None:
        raise _refused(url, "carries a name or a password", "leave them out; the signature says who calls")
    if parts.fragment:
        raise _refused(url, "has a fragment, which is never sent", "leave out what follows the `#`")
    return Origin(parts.scheme, host, parts.port or _PORTS[parts.scheme])


def refuse_url(url: str, allowed: Allowed | None = None) -> Origin:
    """Refuse an address that can never be called; with `allowed`, also one without TLS and a literal private one.

    Raises:
        CallbackRefused: says what is wrong with it.
    """
    origin = origin_of(url)
    if allowed is None:
        return origin
    literal = literal_of(origin.host)
    if literal is not None:
        refuse_address(origin.host, literal, allowed)
    is_allowed = allowed.has_host(origin.host) or (literal is not None and allowed.has(literal))
    if origin.scheme == "http" and not is_allowed:
        raise _refused(url, "is not https", "use https, or name the host in OUTLAST_CALLBACK_ALLOW")
    return origin


def is_same_origin(url: str, base: str) -> bool:
    """Say whether two addresses lead to one origin.

    Raises:
        CallbackRefused: one of them can never be called.
    """
    return origin_of(url) == origin_of(base)


def literal_of(host: str) -> Address | None:
    """Give a host that is an address."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def refuse_address(host: str, address: Address, allowed: Allowed) -> None:
    """Refuse an address that a name has led to, unless it is everybody's or was allowed.

    Raises:
        CallbackRefused: it is private, this machine's, link-local, a cloud's metadata, or no host's at all.
    """
    if allowed.has(address) or allowed.has_host(host):
        return
    if not is_public(address):
        raise CallbackRefused(
            f"{host} leads to {address}, which is not an address of the public internet",
            fix="call a public address, or name the host or its network in OUTLAST_CALLBACK_ALLOW",
        )


def is_public(address: Address) -> bool:
    """Say whether anybody may be meant by an address; one of version 4 within one of version 6 is judged itself."""
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        inside = address.ipv4_mapped
        if inside is None and int(address) >> 32 == 0:
            inside = IPv4Address(int(address))
        if inside is not None:
            return is_public(inside)
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    return not any(address.version == network.version and address in network for network in _DENIED)


def _parts(url: str) -> SplitResult:
    if len(url) > MAX_URL_CHARS or not url.isascii() or any(char <= " " or char == "\\" for char in url):
        raise _refused(
            url, f"is not 1 to {MAX_URL_CHARS} plain characters", "percent-encode what is not ASCII, blanks included"
        )
    # What the parser says of an address repeats it.
    fix = "use an address such as https://hooks.example.com/jobs"
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _refused(url, "cannot be read", fix) from None
    try:
        _ = parts.port
    except ValueError:
        raise _refused(url, "has no readable port", fix) from None
    return parts


def _is_host(host: str) -> bool:
    if literal_of(host) is not None:
        return True
    labels = host.split(".")
    # A number alone, or in hexadecimal, is an address to some resolvers.
    is_number = labels[-1].isdigit() or labels[-1].startswith("0x")
    return (
        0 < len(host) <= 253  # noqa: PLR2004 - as names of hosts are long at most
        and not is_number
        and all(0 < len(label) <= 63 and label.replace("-", "a").replace("_", "a").isalnum() for label in labels)  # noqa: PLR2004 - same
    )


def _refused(url: str, what: str, fix: str) -> CallbackRefused:
    return CallbackRefused(f"the address {_shown(url)}{what}", fix=fix, pointer="/url")


def _shown(url: str) -> str:
    """Give an origin that is beyond doubt, and a blank; of what may be a secret nothing is said again."""
    if _OF_USER.search(url):
        return ""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip(".").lower(), parts.port
    except ValueError:
        return ""
    if parts.scheme not in _PORTS or not _is_host(host):
        return ""
    return f"{Origin(parts.scheme, host, port or _PORTS[parts.scheme])} "
