"""The scripts and the style against the pages they are for: what is heard is told, what is looked for is there."""

from __future__ import annotations

import re

from app.dashboard.assets import Assets
from tests.browser.fetch import DASHBOARD

FILES = {name: content.decode() for name, content in Assets().files.items()}
SCRIPTS = "\n".join(text for name, text in FILES.items() if name.startswith("js/"))
OTHERS = "\n".join(text for name, text in FILES.items() if name.startswith("vendor/"))
FOLDER = DASHBOARD.parents[1]
TEMPLATES = "\n".join(path.read_text() for path in sorted(FOLDER.rglob("*.html")))
CODE = "\n".join(path.read_text() for path in sorted(FOLDER.rglob("*.py")))
# What the server's stream says, and what browsers do.
TOLD = {"jobs-changed", "job-changed", "draining"}
BROWSERS = {"click", "change", "keydown", "focusin", "pointerover", "resize", "visibilitychange", "submit", "pageshow"}


def test_every_event_that_is_heard_is_told_by_somebody() -> None:
    heard = set(re.findall(r'addEventListener\("([\w:-]+)"', SCRIPTS))
    own = set(re.findall(r'dispatchEvent\(new Event\("([\w:-]+)"\)', SCRIPTS))
    # Only these become events of the page; others htmx tells its extensions alone.
    vendors = set(re.findall(r'(?:#L|triggerHtmxEvent)\([\w.]+,"(htmx:[\w:]+)"', OTHERS))
    assert heard - own - vendors - TOLD - BROWSERS == set()
    assert own - heard == set(), "what nobody hears need not be told"


def test_every_hook_of_an_extension_is_called() -> None:
    hooks = set(re.findall(r"\b(htmx_\w+)\s*[:(]", SCRIPTS))
    called = set(re.findall(r'#\$?\w?\([\w.]+,"(htmx:[\w:]+)"', OTHERS))
    assert {hook.replace("_", ":") for hook in hooks} - called == set()


def test_scripts_look_for_what_pages_have() -> None:
    made = set(re.findall(r"dataset\.(\w+) (?:\?\?)?=", SCRIPTS))
    asked = set(re.findall(r"\[data-(\w+)", SCRIPTS)) | set(re.findall(r"dataset\.(\w+)", SCRIPTS))
    shown = set(re.findall(r"data-(\w+)", TEMPLATES))
    assert asked - made - shown == set()
    ids = set(re.findall(r'getElementById\("([\w-]+)"\)', SCRIPTS))
    assert {each for each in ids if f'id="{each}"' not in TEMPLATES} == set()
    done = set(re.findall(r"\[data-do=(\w+)\]", SCRIPTS))
    assert done == set(re.findall(r'data-do="(\w+)"', TEMPLATES)), "a button without a script, or the other way round"


def test_no_rule_of_the_style_is_for_nothing() -> None:
    rules = re.sub(r"/\*.*?\*/|\{[^{}]*\}", "", FILES["outlast.css"], flags=re.DOTALL)
    used = TEMPLATES + SCRIPTS + CODE
    classes = set(re.findall(r"\.([a-zA-Z][\w-]*)", rules))
    assert {each for each in classes if not re.search(rf"(?<![\w-]){each}(?![\w-])", used)} == set()
