"""Holds the packages of tbnets to their order: no import goes to the left.

The source is parsed, not imported: an import inside a function counts too.
"""

import ast
import graphlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# A package imports only from those behind it. What stands right below tbnets/
# comes last; these modules may import each other, as long as there is no cycle.
ORDER = [
    *("cli", "beam", "extras", "tasks", "models", "training", "visualization"),
    *("lite", "serving", "features", "data", "evaluation"),
    *("layers", "losses", "text"),
]
LAZY = "tbnets.features.hub", "tbnets.extras.hub"
"""The one import of an extra by the core, inside a function."""
CLONE = {"tools", "tests", "benchmarks"}
CLONE |= {"reproducing", "site_making", "zoo_making"}
"""Modules that only a clone has, by the names that they are imported by."""


def module_name(path, root):
    """Returns the dotted name of a file, a package by its own name."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node, name, is_package):
    """Returns the dotted names that a statement imports, relative or not."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = name.split(".")
    base = base[: len(base) - node.level + is_package] if node.level else []
    base = ".".join([*base, *filter(None, [node.module])])
    return [f"{base}.{alias.name}" for alias in node.names]


def imports_of(root, base=None):
    """Returns `{module: {imported name: line}}` for the modules below `root`.

    Names are relative to `base`; by default to the folder that holds `root`.
    """
    graph = {}
    for path in sorted(root.rglob("*.py")):
        name = module_name(path, base or root.parent)
        graph[name] = {
            other: node.lineno
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            for other in imported(node, name, path.stem == "__init__")
        }
    return graph


def edges_of(graph):
    """Returns `{module: {module of the same graph that it imports: line}}`."""

    def module(name):
        """Cuts what is no module: the function of `from module import f`."""
        while name and name not in graph:
            name = name.rpartition(".")[0]
        return name

    return {
        name: {
            module(other): line
            for other, line in found.items()
            if module(other) not in ("", name) and (name, module(other)) != LAZY
        }
        for name, found in graph.items()
    }


def place(name):
    """Returns the place of a module's package in `ORDER`."""
    package = name.split(".")[1].replace("__main__", "cli")
    return ORDER.index(package) if package in ORDER else len(ORDER)


def backward(graph):
    """Returns a line for each import of a package that comes before."""
    return [
        f"{name}, line {line}, imports {other}"
        for name, others in edges_of(graph).items()
        for other, line in others.items()
        if "tbnets" not in (name, other) and place(other) < place(name)
    ]


@pytest.fixture(scope="module")
def graph():
    return imports_of(ROOT / "tbnets")


def test_all_packages_are_in_the_dependency_order():
    packages = {path.parent.name for path in ROOT.glob("tbnets/*/__init__.py")}
    assert {*packages, "lite"} == {*ORDER}  # `lite.py` is a single module.


def test_imports_follow_the_dependency_order(graph):
    problems = backward(graph)
    assert not problems, "\n" + "\n".join(problems)


def test_there_are_no_import_cycles(graph):
    of_tools = imports_of(ROOT / "tools", base=ROOT / "tools")
    for one in graph, of_tools:  # A circle raises a CycleError that names it.
        graphlib.TopologicalSorter(edges_of(one)).prepare()


PRIVATE = re.compile(
    r"tensorflow\.python|keras\.src|keras\.saving\.saving_lib|_initial_epoch"
    r"|_use_cached_eval_dataset|control_flow_util|op_def_registry"
)


def test_no_private_api_of_tensorflow_and_keras_is_used():
    found = [
        f"{path.relative_to(ROOT)}: {match}"
        for folder in ("tbnets", "tools")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for match in PRIVATE.findall(path.read_text("utf-8"))
    ]
    assert not found


def test_tbnets_imports_neither_tools_nor_tests(graph):
    of_tools = imports_of(ROOT / "tools")
    for modules, others in (graph, CLONE), (of_tools, {"tools"}):
        problems = [
            f"{name}, line {line}, imports {other}"
            for name, found in modules.items()
            for other, line in found.items()
            if other.split(".")[0] in others
        ]
        assert not problems, "\n" + "\n".join(problems)


def test_modules_and_functions_have_limited_length():
    too_long = []
    for path in sorted((ROOT / "tbnets").rglob("*.py")):
        text = path.read_text("utf-8")
        lines = len(text.splitlines())
        too_long += [(path.name, lines)] * (lines > 600)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                lines = node.end_lineno - node.lineno + 1
                told = ast.get_docstring(node, clean=False) or ""
                lines -= len(told.splitlines())
                too_long += [(node.name, lines)] * (lines > 60)
    assert not too_long


def test_every_package_has_tests():
    """tests/ mirrors tbnets/: a folder for a folder."""
    missing = [
        n for n in ORDER if not list(ROOT.glob(f"tests/{n}/**/test_*.py"))
    ]
    assert not missing


def test_tasks_do_not_import_each_other(graph):
    tasks = ("matching", "localization")
    for name, others in edges_of(graph).items():
        for one, other in (tasks, tasks[::-1]):
            if name.startswith(f"tbnets.tasks.{one}"):
                there = f"tbnets.tasks.{other}", "tbnets.tasks.hierarchical"
                assert not [o for o in others if o.startswith(there)]
