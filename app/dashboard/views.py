"""The templates: escaped by themselves, strict about names, with the words and marks that pages share.

Stored text never becomes markup. JSON is shown as it is stored, its keys marked, its numbers untouched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ..domain.redaction import REDACTED
from . import words
from .assets import Assets

_FOLDER = Path(__file__).parent / "templates"
_BIDI = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_KEY = re.compile(r"(&#34;(?:[^&]|&(?!#34;))*?&#34;)(?=\s*:)")
_LINK = re.compile(r"https?://[^\s<>&\"'`]+")
_KEPT_BACK = str(escape(REDACTED))
_TICKED = re.compile(r"`([^`]+)`")
MOST_SHOWN = 65_536


class Views:
    """Renders templates. `facts` are the same on every page of a process."""

    def __init__(self, assets: Assets, facts: Mapping[str, object]) -> None:
        self._env = Environment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._env.filters |= {
            name: getattr(words, name)
            for name in (
                "dur",
                "ago",
                "since_ms",
                "num",
                "percent",
                "short",
                "stamp",
                "clock",
                "phase",
                "iso",
                "size",
                "sentence",
            )
        }
        self._env.filters |= {"plain": plain, "source": source, "ticked": ticked, "points": points, "ident": id}
        self._env.globals |= {"static": f"static/{assets.digest}", **facts}

    def render(self, template: str, context: Mapping[str, object]) -> str:
        """Give a page."""
        return self._env.get_template(template).render(context)

    def block(self, template: str, block: str, context: Mapping[str, object]) -> str:
        """Give one block of a page."""
        found = self._env.get_template(template)
        return "".join(found.blocks[block](found.new_context(dict(context))))


def plain(text: object) -> str:
    """Show characters that turn the direction of text as what they are."""
    return _BIDI.sub(lambda found: f"\\u{ord(found[0]):04x}", str(text))


def source(text: str | None) -> Markup:
    """Give JSON as markup with its keys marked, and addresses of the web as links; nothing else becomes markup."""
    shown = str(escape(plain((text or "")[:MOST_SHOWN])))
    marked = _KEY.sub(r"<i>\1</i>", shown).replace(_KEPT_BACK, "<mark>redacted</mark>")
    return Markup(_LINK.sub(_link, marked))  # noqa: S704 - escaped above


def ticked(text: object) -> Markup:
    """Give a sentence with what stands in backticks as code; nothing else becomes markup."""
    shown = str(escape(plain(text)))
    return Markup(_TICKED.sub(r"<code>\1</code>", shown))  # noqa: S704 - escaped above


def points(values: Sequence[float]) -> str:
    """Give the points of a line through values, evenly spread over 100 by 20; nought lies at the foot."""
    top, steps = max([*values, 1]), max(len(values) - 1, 1)
    return " ".join(
        f"{round(100 * place / steps, 2):g},{round(18 - 16 * each / top, 2):g}" for place, each in enumerate(values)
    )


def _link(found: re.Match[str]) -> str:
    address = found[0]
    return f'<a class="ln" href="{address}" rel="noopener noreferrer">{address}</a>'
