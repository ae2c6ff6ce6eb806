"""What the doctor sees of the machine it is on: whether modules import, and who listens on its ports.

Blocks for as long as an import takes; asked by the command line alone, before the store is. Built by the composition
root.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException

from ...domain.errors import OutlastError
from ...jobs.registry import load_registry
from .finding import ModulesFound, PortFound

_ANSWER_SECONDS = 2.0


def look_at_modules(modules: Sequence[str]) -> ModulesFound:
    """Import the modules, as a worker would."""
    try:
        return ModulesFound(modules=tuple(modules), declared=len(load_registry(modules)))
    except OutlastError as error:
        return ModulesFound(modules=tuple(modules), error=error)


def look_at_port(variable: str, host: str, port: int) -> PortFound:
    """Try to listen on an address, and give it back at once; where that fails, ask who is there."""
    address = f"{host}:{port}"
    try:
        _listen(host, port)
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        is_ours = in_use and _answers_as_ours(host, port)
        said = "another process listens there" if in_use else os.strerror(error.errno or 0)
        free = _listen(host, 0) if in_use else None
        return PortFound(variable=variable, address=address, taken_by=said, is_ours=is_ours, free_port=free)
    return PortFound(variable=variable, address=address)


def _listen(host: str, port: int) -> int:
    """Listen for an instant and give the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((host.strip("[]"), port))
        one.listen(1)
        found: int = one.getsockname()[1]
        return found


def _answers_as_ours(host: str, port: int) -> bool:
    nearby = {"0.0.0.0": "127.0.0.1", "[::]": "::1", "::": "::1"}.get(host, host.strip("[]"))  # noqa: S104 - not bound
    connection = HTTPConnection(nearby, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/livez")
        answer = connection.getresponse()
        return answer.status == _OK and answer.read(16).strip() == b"ok"
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


_OK = 200
