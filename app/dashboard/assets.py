"""The style and scripts of the pages: read once, served under an address that names their content, kept for ever.

One digest stands for all files, so that a module finds its siblings beside itself. Nothing else of the disk is served.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path

from starlette.responses import Response

_FOLDER = Path(__file__).parent / "static"
_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOREVER = "public, max-age=31536000, immutable"
_DIGITS = 16


class Assets:
    """The files of the folder `static` by their path below it."""

    def __init__(self, folder: Path = _FOLDER) -> None:
        self._folder = folder

    @cached_property
    def files(self) -> dict[str, bytes]:
        """Give what browsers may have."""
        found = sorted(path for path in self._folder.rglob("*") if path.suffix in _MEDIA_TYPES)
        return {path.relative_to(self._folder).as_posix(): path.read_bytes() for path in found}

    @cached_property
    def digest(self) -> str:
        """Give the word that changes with any of the files."""
        digest = hashlib.sha256()
        for name, content in self.files.items():
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()[:_DIGITS]

    def serve(self, digest: str, name: str) -> Response | None:
        """Give a file; None for one there is not, and for an address of other contents."""
        content = self.files.get(name)
        if content is None or digest != self.digest:
            return None
        media_type = _MEDIA_TYPES[Path(name).suffix]
        return Response(content, media_type=media_type, headers={"Cache-Control": _FOREVER})
