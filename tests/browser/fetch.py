"""Brings the scripts of others into the tree: `python -m tests.browser.fetch`, by npm, which has to be installed.

Each archive is compared with the digest that the registry publishes for it before a file is taken from it. What was
taken is written down in a VENDOR.json beside the files; a test compares them with it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.source import CHECKOUT

DASHBOARD = CHECKOUT / "app" / "dashboard" / "static" / "vendor"
BROWSER = CHECKOUT / "tests" / "browser" / "vendor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What is taken of one package, to where."""

    name: str
    version: str
    files: dict[str, str]
    into: Path


PACKAGES = (
    Package(
        name="htmx.org",
        version="4.0.1",
        files={"dist/htmx.min.js": "htmx.js", "dist/ext/hx-sse.min.js": "hx-sse.js", "LICENSE": "htmx.LICENSE"},
        into=DASHBOARD,
    ),
    Package(
        name="uplot",
        version="1.6.32",
        files={"dist/uPlot.iife.min.js": "uplot.js", "dist/uPlot.min.css": "uplot.css", "LICENSE": "uplot.LICENSE"},
        into=DASHBOARD,
    ),
    Package(name="axe-core", version="4.14.1", files={"axe.min.js": "axe.js", "LICENSE": "axe.LICENSE"}, into=BROWSER),
)


def digest_of(content: bytes) -> str:
    """Give the digest of a file as the registry writes it."""
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def fetch(package: Package, folder: Path) -> dict[str, object]:
    """Take a package's files, and give what is to be written down about them."""
    spec = f"{package.name}@{package.version}"
    shown = json.loads(_npm("view", "--json", spec, "dist.integrity", "license", cwd=folder))
    archive = folder / json.loads(_npm("pack", "--json", spec, cwd=folder))[0]["filename"]
    if digest_of(archive.read_bytes()) != shown["dist.integrity"]:
        raise SystemExit(f"{spec} is not what the registry says it is")
    digests = {}
    with tarfile.open(archive) as packed:
        for source, target in package.files.items():
            member = packed.extractfile(f"package/{source}")
            assert member is not None, f"{spec} has no {source}"
            content = _without_map(member.read())
            (package.into / target).write_bytes(content)
            digests[target] = digest_of(content)
    return {
        "name": package.name,
        "version": package.version,
        "licence": shown["license"],
        "integrity": shown["dist.integrity"],
        "files": digests,
    }


def main() -> None:
    """Fetch every package anew."""
    for into in (DASHBOARD, BROWSER):
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            found = [fetch(package, Path(folder)) for package in PACKAGES if package.into == into]
        (into / "VENDOR.json").write_text(json.dumps(found, indent=2) + "\n")


def _without_map(content: bytes) -> bytes:
    """Leave out the line that names a source map: it is not shipped, and browsers would ask for it."""
    return b"\n".join(line for line in content.split(b"\n") if not line.startswith(b"//# sourceMappingURL="))


def _npm(*words: str, cwd: Path) -> str:
    return subprocess.run(["npm", *words], cwd=cwd, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
