"""Only two dicts depend on the task or the model of a run."""

import ast
import pathlib
import re

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


def test_only_two_dicts_map_tasks_and_models():
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
        for folder in ("tbnets", "tools")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    classes = {
        name
        for path, text in texts.items()
        if path.startswith(CLASSES) and "/settings/" not in path
        for name in re.findall(r"^class (\w+)", text, re.MULTILINE)
    }
    # Parsing only the files that can match takes a tenth of the time.
    some = "|".join((*(f'"{name}"' for name in NAMES), "TASKS", "BUILDERS"))
    of_class = rf"(isinstance|issubclass)\([^:]*\b({'|'.join(classes)})\b"
    found = [
        f"{path}, line {node.lineno}: {ast.unparse(node)}"
        for path, text in texts.items()
        if path not in DICTS and re.search(f"{some}|{of_class}", text)
        for node in ast.walk(ast.parse(text))
        if asks(node, classes)
    ]
    assert not found, "\n" + "\n".join(found)
