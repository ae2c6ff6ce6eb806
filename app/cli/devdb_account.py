"""Which account the development PostgreSQL runs under, and which folders that account can reach.

PostgreSQL refuses to run as root, so root hands it to another account; its files must then lie where that account can
go, which a checkout in a root-only folder is not. Owns those two answers; starts nothing. Used by the `devdb` modules.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from ..domain.errors import DriverUnavailable

# Reboots empty /tmp on many systems and leave this one alone: jobs enqueued yesterday are expected to be there.
_ELSEWHERE = Path("/var/tmp")  # noqa: S108 - folders in it are created 0700 or 0711 and their owner is checked
# `postgres` comes with every packaged server; `nobody` is everywhere, and no account is created on anybody's machine.
_STAND_INS = ("postgres", "nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An operating-system account; `user`, `group`, `extra_groups` are what `subprocess` takes, None to stay as is."""

    uid: int
    gid: int
    is_switched: bool

    @property
    def user(self) -> int | None:
        """The uid to switch to, None when the process already has it."""
        return self.uid if self.is_switched else None

    @property
    def group(self) -> int | None:
        """The gid to switch to, None when the process already has it."""
        return self.gid if self.is_switched else None

    @property
    def extra_groups(self) -> list[int] | None:
        """No supplementary groups after a switch: root's must not travel along."""
        return [] if self.is_switched else None

    def can_reach(self, path: Path) -> bool:
        """Whether everything that exists on the way to `path` (not `path` itself) lets this account through."""
        if not self.is_switched:
            return True
        return all(self._may_pass(each) for each in path.resolve().parents if each.exists())

    def _may_pass(self, each: Path) -> bool:
        info = each.stat()
        if info.st_uid == self.uid:
            return bool(info.st_mode & stat.S_IXUSR)
        if info.st_gid == self.gid:
            return bool(info.st_mode & stat.S_IXGRP)
        return bool(info.st_mode & stat.S_IXOTH)

    def owns(self, path: Path) -> None:
        """Give `path` to this account."""
        if self.is_switched:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def server_account() -> Account:
    """Give the account a PostgreSQL server may run under: the caller's own, or for root a stand-in.

    Raises:
        DriverUnavailable: the caller is root and the system has no account to hand the server to.
    """
    if os.geteuid() != 0:
        return Account(uid=os.geteuid(), gid=os.getegid(), is_switched=False)
    for name in _STAND_INS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid, is_switched=True)
    raise DriverUnavailable(
        "PostgreSQL does not run as root, and there is no account to hand it to",
        fix="run as an ordinary user, or create one for it: useradd --system postgres",
    )


def reachable_root(wanted: Path, account: Account) -> Path:
    """Give the folder that stands for `wanted`: itself where the account can reach it, else one elsewhere.

    The answer depends on the path alone, so the next call finds the data again.
    """
    wanted = wanted.absolute()
    return wanted if account.can_reach(wanted / "cluster") else elsewhere(wanted, base=_ELSEWHERE)


def elsewhere(path: Path, *, base: Path = _ELSEWHERE) -> Path:
    """Name a folder under `base` that belongs to this user and to `path`."""
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    return base / f"outlast-{os.geteuid()}-{digest}"


def make_folder(path: Path, *, mode: int, account: Account | None = None) -> Path:
    """Create `path` and its parents, owned by `account` if given; an existing one is checked, not trusted.

    Raises:
        DriverUnavailable: something of that name exists that is no folder or belongs to somebody else.
    """
    if not path.parent.exists():
        make_folder(path.parent, mode=0o755)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        _check_owner(path, account)
        return path
    path.chmod(mode)  # mkdir's mode is cut by the umask
    if account is not None:
        account.owns(path)
    return path


def _check_owner(path: Path, account: Account | None) -> None:
    info = path.lstat()
    allowed = {os.geteuid()} | ({account.uid} if account is not None else set())
    if not stat.S_ISDIR(info.st_mode) or info.st_uid not in allowed:
        raise DriverUnavailable(
            f"{path} is not a folder of this user's (owner uid {info.st_uid})",
            fix="remove or rename it, or choose another --data-dir",
        )
