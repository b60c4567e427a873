"""Only two dicts depend on the task or the model of a run."""

import ast
import pathlib

from tbnets.tasks import registry

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DICTS = {"tbnets/tasks/builders.py", "tbnets/tasks/registry.py"}
AXES = {"task", "model"}
NAMES = {*registry.TASKS, *registry.MODELS}
CLASSES = ("tbnets/models/", "tbnets/tasks/", "tbnets/serving/served")
"""Files whose classes stand for a model or a task."""


def words(node):
    """Returns the names, attributes and strings of a piece of syntax."""
    fields, nodes = ("id", "attr", "value"), ast.walk(node)
    return {getattr(each, name, None) for each in nodes for name in fields}


def asks(node, classes):
    """Returns whether a piece of syntax depends on the task or the model."""
    if isinstance(node, ast.Compare):
        return bool(words(node) & NAMES and words(node) & AXES)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        of_class = node.func.id in ("isinstance", "issubclass")
        return of_class and bool(words(node.args[1]) & classes)
    if isinstance(node, ast.Dict):
        pairs = [pair for pair in zip(node.keys, node.values) if pair[0]]
        return any(words(k) & AXES and words(v) & NAMES for k, v in pairs)
    is_item = isinstance(node, ast.Subscript)
    return is_item and bool(words(node.value) & {"TASKS", "MODELS"})


def test_only_two_dicts_depend_on_the_task_or_the_model():
    nodes, classes = [], set()
    for folder in ("tbnets", "tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            each = [*ast.walk(ast.parse(path.read_text("utf-8")))]
            if name.startswith(CLASSES) and "/settings/" not in name:
                defined = [n for n in each if isinstance(n, ast.ClassDef)]
                classes |= {node.name for node in defined}
            nodes += [(name, node) for node in each if name not in DICTS]
    found = [
        f"{name}, line {node.lineno}: {ast.unparse(node)}"
        for name, node in nodes
        if asks(node, classes)
    ]
    assert not found, "\n" + "\n".join(found)
