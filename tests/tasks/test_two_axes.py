"""Nothing but two dicts asks which task, or which model, a run is of."""

import ast
import functools
import pathlib

from tbnets import tasks

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DICTS = {"tbnets/tasks/parts.py", "tbnets/tasks/registry.py"}
AXES = {"task", "model"}
NAMES = {*tasks.TASKS, *tasks.BUILDERS}


@functools.cache
def sources():
    """Returns path from the root -> syntax tree of each module."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8"))
        for folder in ("tbnets", "tools")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


@functools.cache
def asked_classes():
    """Returns the names of the classes of models, of tasks and of what serves.

    An `isinstance` with one of them would ask for a model or a task.
    """
    return {
        node.name
        for name, tree in sources().items()
        if name.startswith(("tbnets/models/", "tbnets/tasks/"))
        and not name.startswith("tbnets/tasks/settings/")
        or name.startswith("tbnets/serving/served")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


def words(node):
    """Returns the names, attributes and strings of a piece of syntax."""
    found = set()
    for one in ast.walk(node):
        found |= {getattr(one, "id", None), getattr(one, "attr", None)}
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            found.add(one.value)
    return found


def asks(node, classes):
    """Tells whether a piece of syntax asks for a task or a model."""
    if isinstance(node, ast.Compare):
        sides = [words(one) for one in (node.left, *node.comparators)]
        return bool(words(node) & NAMES) and any(s & AXES for s in sides)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        of_class = node.func.id in ("isinstance", "issubclass")
        return of_class and bool(words(node.args[1]) & classes)
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values)
        return any(
            key is not None and words(key) & AXES and words(value) & NAMES
            for key, value in pairs
        )
    if isinstance(node, ast.Subscript):
        return bool(words(node.value) & {"TASKS", "BUILDERS"})
    return False


def test_nothing_else_asks_for_a_task_or_a_model():
    classes = asked_classes()
    found = [
        f"{name}, line {node.lineno}: {ast.unparse(node)}"
        for name, tree in sources().items()
        if name not in DICTS
        for node in ast.walk(tree)
        if asks(node, classes)
    ]
    assert not found, "\n" + "\n".join(found)
