"""Holds the rooms of tbnets to their order: an import only ever goes down.

The source is parsed, not imported: an import inside a function counts too.
"""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# From the top floor down. A name is a folder or a module right below tbnets/;
# those of one floor may import each other, as long as there is no circle.
FLOORS = [
    ["commands"],
    ["server"],
    ["runs"],
    ["tasks"],
    ["recipes"],
    ["models"],
    ["training"],
    ["flags", "settings", "photo_flags"],
    ["layers"],
    ["serving"],
    ["pictures"],
    ["features"],
    ["localization"],
    ["data"],
    ["evaluation"],
    ["text"],
    ["index"],
    ["store"],
    ["losses"],
    ["scenes"],
    [
        *("annotations", "boxes", "checked_files", "checked_numbers", "cores"),
        *("errors", "files", "identity", "images", "locks", "photo_head"),
        *("photo_kinds", "pipelines", "progress", "replicas", "rounding"),
        *("seeds", "shipped", "short_repr", "startup", "statistics"),
    ],
]
CLONE = {"tools", "tests", "benchmarks", "measuring"}
CLONE |= {"reproducing", "site_making", "zoo_making"}
"""What stands in a clone alone, by the names that it is imported by."""
OPTIONAL = {"settings", "photo_flags"}
HEIGHT = {name: -depth for depth, names in enumerate(FLOORS) for name in names}


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
            if module(other) not in ("", name)
        }
        for name, found in graph.items()
    }


def room(name):
    """Returns the room of a module: `data` for `tbnets.data.captions`."""
    return name.split(".")[1] if "." in name else ""


def upward(graph):
    """Returns a line for each import from a floor above."""
    return [
        f"{name}, line {line}, imports {other}: `{room(other)}` is not below "
        f"`{room(name)}`"
        for name, others in edges_of(graph).items()
        for other, line in others.items()
        if room(name) in HEIGHT
        and room(other) in HEIGHT
        and HEIGHT[room(other)] > HEIGHT[room(name)]
    ]


def circle(graph):
    """Returns the names of modules that import each other in a ring."""
    edges, state, trail = edges_of(graph), {}, []

    def visit(name):
        state[name] = "open"
        trail.append(name)
        for other in edges[name]:
            if state.get(other) == "open":
                return [*trail[trail.index(other) :], other]
            if other not in state:
                found = visit(other)
                if found:
                    return found
        state[name] = "done"
        trail.pop()
        return []

    for name in edges:
        if name not in state:
            found = visit(name)
            if found:
                return found
    return []


@pytest.fixture(scope="module")
def graph():
    return imports_of(ROOT / "tbnets")


def test_every_room_has_its_floor(graph):
    rooms = {room(name) for name in graph} - {""}
    unknown = rooms - HEIGHT.keys()
    assert not unknown, f"name their floor in {__file__}: {sorted(unknown)}"
    gone = HEIGHT.keys() - rooms - OPTIONAL
    assert not gone, f"listed in {__file__}, but not there: {sorted(gone)}"


def test_imports_go_down(graph):
    problems = upward(graph)
    assert not problems, "\n" + "\n".join(problems)


def test_no_modules_import_each_other_in_a_circle(graph):
    of_tools = imports_of(ROOT / "tools", base=ROOT / "tools")
    for cycle in circle(graph), circle(of_tools):
        assert not cycle, " -> ".join(cycle)


def test_tbnets_imports_neither_tools_nor_tests(graph):
    problems = [
        f"{name}, line {line}, imports {other}"
        for name, found in graph.items()
        for other, line in found.items()
        if other.split(".")[0] in CLONE
    ]
    assert not problems, "\n" + "\n".join(problems)


def test_tools_do_not_import_each_other():
    problems = [
        f"{name}, line {line}, imports {other}"
        for name, found in imports_of(ROOT / "tools").items()
        for other, line in found.items()
        if other.split(".")[0] == "tools"
    ]
    assert not problems, "\n" + "\n".join(problems)


def test_modules_and_functions_can_be_read_at_once():
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


def test_every_room_has_tests():
    """tests/ mirrors tbnets/: a folder for a folder."""
    missing = [
        name
        for name in HEIGHT
        if (ROOT / "tbnets" / name).is_dir()
        and not list((ROOT / "tests" / name).glob("test_*.py"))
    ]
    assert not missing, f"no tests/NAME/test_*.py for {missing}"


@pytest.fixture
def package(tmp_path):
    """Returns a function that writes modules and returns their imports."""

    def write(**modules):
        for name, text in modules.items():
            path = tmp_path / "tbnets" / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            (path.parent / "__init__.py").touch()
            path.write_text(text)
        return imports_of(tmp_path / "tbnets")

    return write


@pytest.mark.parametrize(
    "text",
    [
        "import tbnets.models.cca",
        "from tbnets.models import cca",
        "from tbnets.models.cca import Cca",
        "from ..models import cca",
        "def late():\n    from tbnets.models.cca import Cca",
        "if False:\n    import numpy, tbnets.models.cca",
    ],
)
def test_an_import_that_goes_up_is_found(package, text):
    graph = package(models__cca="", data__photos=text)
    line = 1 + text.count("\n")
    assert upward(graph) == [
        f"tbnets.data.photos, line {line}, imports tbnets.models.cca: `models` "
        "is not below `data`"
    ]
    down = package(
        models__cca="from tbnets.data import photos", data__photos=""
    )
    assert upward(down) == []


def test_an_import_from_the_ground_floor_is_found(package):
    graph = package(boxes="from tbnets import scenes", scenes__words="")
    assert len(upward(graph)) == 1
    assert upward(package(boxes="from tbnets import files", files="")) == []


def test_a_circle_is_found(package):
    graph = package(
        data__one="from tbnets.data import two",
        data__two="from tbnets.data.three import f",
        data__three="def f():\n    from tbnets.data import one",
    )
    assert circle(graph)[0] == circle(graph)[-1]
    assert set(circle(graph)) == {
        "tbnets.data.one",
        "tbnets.data.two",
        "tbnets.data.three",
    }
    assert circle(package(data__three="")) == []


def test_import_tbnets_is_cheap():
    heavy = ["tensorflow", "keras", "numpy", "absl"]
    code = f"import sys, tbnets; print(*(set({heavy}) & sys.modules.keys()))"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (ended.stdout, ended.stderr) == ("\n", "")
