"""Checks the links, names and code references of pages."""

import ast
import functools
import importlib
import pathlib
import re

import pytest

from tbnets import cli
from tbnets.tasks.settings.flag import flags_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
]
PACKAGES = {path.stem for path in (ROOT / "tbnets").glob("[a-z]*")}
FILES = {"config", "csv", "flags", "json", "jsonl", "md"}
FILES |= {"jpg", "npy", "npz", "pb", "png", "py", "tbnets", "tflite", "txt"}
NAME = re.compile(r"`(?:tbnets\.)?(\w+(?:\.\w+)+)(?:\([^`]*)?`")


def anchors(page):
    """Returns the anchors of the sections of a page."""
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.M)
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in plain}


@functools.cache
def exists(name):
    """Returns whether tbnets has `package.module.Name.member`."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(f"tbnets.{'.'.join(parts[:count])}")
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        return found is not None
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_names_of_a_page_exist(page):
    text = page.read_text("utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if not path.startswith("http"):
            target = page.parent / path if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link
    for name in set(NAME.findall(text)):
        parts = name.split(".")
        if parts[0] in PACKAGES and parts[-1] not in FILES:
            assert exists(name), name


def test_pages_that_the_code_names_exist():
    named = set()
    for folder in ("tbnets", "tools", "configs", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".flags"):
                text = path.read_text("utf-8")
                named |= {*re.findall(r"docs/\w+\.md", text)}
    assert named and all((ROOT / page).is_file() for page in named), named


OTHER_PROGRAMS = {
    "all": "docker",
    "batching_parameters_file": "TensorFlow Serving",
    "dir": "docker",
    "enable_batching": "TensorFlow Serving",
    "flag": "a placeholder",
    "flagfile": "absl",
    "force-reinstall": "pip",
    "helpshort": "absl",
    "hypothesis-profile": "pytest",
    "logdir": "tensorboard",
    "no-deps": "pip",
    "strict": "mkdocs",
    **dict.fromkeys(
        (
            *("environment_type", "flink_master", "project", "region"),
            *("runner", "sdk_container_image", "spark_master_url"),
            *("temp_location", "direct_num_workers", "direct_running_mode"),
            *("allow_unsafe_triggers", "default_sdk_harness_log_level"),
        ),
        "Apache Beam",
    ),
}
"""Flags of other programs that texts of tbnets name, with the program."""
FLAG = re.compile(r"(?<![\w/-])--([a-z][\w-]*)")


def declared_flags():
    """Returns the flags that commands and tools declare."""
    names = {"help", "version"}
    for verb in cli.VERBS:
        module = importlib.import_module(f"tbnets.cli.{verb}")
        for group in (module.Options, *getattr(module, "GROUPS", ())):
            names |= {flag.name for flag in flags_of(group)}
    for path in (ROOT / "tools").rglob("*.py"):
        text = path.read_text("utf-8")
        names |= {*re.findall(r'"--([\w-]+)"', text)}
        names |= {*re.findall(r"^    (\w+): .*= flag\(", text, re.M)}
    return names | {f"no{name}" for name in names}


@functools.cache
def sources():
    """Returns (path, syntax tree) of the modules of the package and tools."""
    return [
        (path, ast.parse(path.read_text("utf-8")))
        for folder in ("tbnets", "tools")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


def strings():
    """Yields (path, text) of pages, flag files, docstrings and messages."""
    for path in [*PAGES, *sorted((ROOT / "configs").rglob("*.flags"))]:
        yield path, path.read_text("utf-8")
    for path, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path, node.value


def test_flags_in_texts_exist():
    known = declared_flags() | OTHER_PROGRAMS.keys()
    unknown = {
        f"{path.relative_to(ROOT)}: --{name}"
        for path, text in strings()
        for name in FLAG.findall(text)
        if name not in known
    }
    assert not unknown


OTHER_NAMES = {"KEY", "ModelVersionStatus", "assets", "json_tensor", "torch"}
OTHER_NAMES |= {"keras_hub", "loaded", "model"}
"""First parts of dotted names that are not defined in this repository."""


def names_in(tree):
    """Returns the names that a syntax tree defines or mentions."""
    names = set()
    for node in ast.walk(tree):
        for field in ("id", "arg", "attr", "name", "asname"):
            value = getattr(node, field, None)
            names |= {value} if isinstance(value, str) else set()
    return names


def variables_of(tree):
    nodes = [*ast.walk(tree)]
    names = {
        n.id
        for n in nodes
        if isinstance(getattr(n, "ctx", 0), ast.Store)
        and isinstance(n, ast.Name)
    }
    return names | {n.arg for n in nodes if isinstance(n, ast.arg)}


def docstrings(tree):
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    nodes = (node for node in ast.walk(tree) if isinstance(node, kinds))
    return "\n".join(ast.get_docstring(node) or "" for node in nodes)


def test_dotted_names_in_docstrings_exist():
    """A part of tbnets is found by its path, module or class.

    The first part may also be a variable of the same module.
    """
    owners, bases, unknown = {}, {}, set()
    for path, tree in sources():
        name = path.stem if path.stem != "__init__" else path.parent.name
        owners.setdefault(name, set()).update(names_in(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                owners.setdefault(node.name, set()).update(names_in(node))
                bases[node.name] = [ast.unparse(base) for base in node.bases]
    for name, parents in bases.items():
        for parent in parents:
            owners[name] |= owners.get(parent, set())
    for path, tree in sources():
        local = (names_in(tree) - owners.keys()) | variables_of(tree)
        for name in NAME.findall(docstrings(tree)):
            first, *_, last = name.split(".")
            is_known = first in local | OTHER_NAMES or last in FILES
            is_known |= last in owners.get(first, ()) or exists(name)
            if not is_known and not is_installed(first):
                unknown.add(f"{path.relative_to(ROOT)}: {name}")
    assert not unknown


def is_installed(name):
    return name.isidentifier() and importlib.util.find_spec(name) is not None
