"""Rules no linter knows: who may create tasks, and what must not be written anywhere in the repository."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.support.source import python_files, relative, repository_files, tree_of

# Where a task may be created without a TaskGroup around it, and who awaits it there.
TASK_OWNERS = {
    "app/lifecycle/tasks.py": "gives each task a name; whoever asked for it keeps and awaits it",
    "app/lifecycle/loop_run.py": "the process's own task, for which the loop is run",
    "app/drivers/finishes.py": "kept by the driver, whose close awaits it; ends by itself when nobody waits",
    "app/drivers/postgres/apart.py": "kept by the lane, the ringer and the low look, whose close awaits it",
    "app/drivers/postgres/listen.py": "cancelled and awaited when the listening context closes",
    "app/http/admin.py": "runs on the main loop for a request of the admin thread, which waits for the answer",
}

TASK_MAKERS = {"create_task", "ensure_future", "run_coroutine_threadsafe"}


def makes_tasks_of_its_own(tree: ast.Module) -> bool:
    """Whether a task is made by anything but a task group, which by custom is called `group` or `tasks`."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in TASK_MAKERS
        and not (
            isinstance(node.func.value, ast.Name | ast.Attribute) and ast.unparse(node.func.value).endswith("group")
        )
        for node in ast.walk(tree)
    )


def test_every_task_has_an_owner() -> None:
    makers = {relative(path) for path in python_files("app") if makes_tasks_of_its_own(tree_of(path))}
    assert makers == set(TASK_OWNERS), "use a TaskGroup; where one cannot be, name the owner in TASK_OWNERS"


# Put together here, so that this file passes its own test.
FORBIDDEN = [
    "py" + r"pi\.org",
    "python" + "hosted",
    "npm" + r"js\.(org|com)",
    "deb\\." + "debian",
    r"(?<![\w.])/wo" + "rk/",
    r"(?<![\w.])/fa" + "rm/",
    r"(?<![\w.])/ro" + "ot/",
    r"(?<![\w.])/ho" + "me/",
    "sha" + "red/(SPEC|STYLE|UX|FAULTS|PERFORMANCE|SECURITY|ARCHITECTURE)",
]


def read(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return ""


def test_no_file_names_a_registry_or_somebodys_machine() -> None:
    pattern = re.compile("|".join(FORBIDDEN), re.IGNORECASE)
    found = {relative(path): match.group() for path in repository_files() if (match := pattern.search(read(path)))}
    assert found == {}


def test_the_locks_hold_hashes_and_no_index() -> None:
    for lock in (path for path in repository_files() if path.parent.name == "requirements" and path.suffix == ".txt"):
        lines = [line.strip() for line in lock.read_text().splitlines() if not line.lstrip().startswith("#")]
        assert not [line for line in lines if line.startswith("-") and not line.startswith("--hash=sha256:")]
        assert not [line for line in lines if "://" in line]
        pinned = [line for line in lines if "==" in line]
        assert pinned
        assert all(line.endswith("\\") for line in pinned), "each is followed by its hashes"
