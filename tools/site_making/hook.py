"""Makes the pages of the MkDocs site that are not in docs/.

`pip install -e ".[docs]" && mkdocs build` writes the site. This hook adds
README.md as the home page, all pages in `OUTSIDE`, and pages for the public
names, the configurations and the notebooks.
"""

import ast
import itertools
import json
import pathlib
import posixpath
import re

import tbnets
from tbnets.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[2]
ZOO = "model_zoo/README.md"
CARDS = [
    path.relative_to(ROOT).as_posix()
    for path in sorted(ROOT.glob("model_zoo/*/README.md"))
]
OUTSIDE = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
OUTSIDE += ["SECURITY.md", "CITATION.cff"]
OUTSIDE += [ZOO, *CARDS]
CONFIGURATIONS = "configurations.md"
API = "api/index.md"
ARGUMENT_TYPES = """
serving.served.Served serving.search_index.SearchIndex
data.store.features.Features evaluation.ranks.Ranks losses.ranking.LossOutput
losses.logistic.LogisticOutput losses.logistic.SoftmaxOutput
losses.positives.PositiveMasks losses.logistic.PairSample
text.packed_trees.PackedTrees checks
""".split()
"""Types of arguments and results that are not public names."""
TYPES = "Array Integers Batch Tensors Boxes Path Strings Photo Photos".split()
NAME = re.compile(rf"(?<!\[)`tbnets\.({'|'.join(tbnets.__all__)})`")
STEMS = [path.stem for path in ROOT.glob("configs/**/*.flags")]
FLAGFILE = re.compile(
    rf"(?<!\[)`(?:configs/)?(?:features/)?({'|'.join(STEMS)})\.flags`"
)
KINDS = {
    "Rendered scenes": ("quickstart", "scenes"),
    "Flickr8k": ("flickr8k",),
    "Flickr30K Entities: phrases": ("entities",),
    "Niu et al. 2017": ("niu2017",),
    "Vilalta et al. 2017": ("vilalta2017",),
    "Wang et al. 2016": ("wang2016",),
    "Wang et al. 2018": ("wang2018",),
}
"""First words of the file names in each section of the configurations page."""


def api_groups():
    """Returns a dict from group titles to lists of dotted names in tbnets."""
    stub = (ROOT / "tbnets" / "__init__.pyi").read_text("utf-8")
    parts = re.findall(r"^# (.*)\.\n((?:[^#\n].*\n)+)", stub, re.M)
    groups = {title: re.findall(r"(\w+) as \w+", text) for title, text in parts}
    return groups | {"Types of arguments and results": ARGUMENT_TYPES}


def summary(name):
    """Returns the first line of the docstring of a dotted name."""
    module = tbnets._MODULES.get(name, "tbnets." + name.rpartition(".")[0])
    path = ROOT / module.strip(".").replace(".", "/")
    last = name.rpartition(".")[2]
    if (path / f"{last}.py").is_file():
        return ast.get_docstring(_parsed(path / f"{last}.py")).splitlines()[0]
    body = _parsed(path.with_suffix(".py")).body
    for node, after in itertools.pairwise([*body, None]):
        if getattr(node, "name", None) == last:
            return ast.get_docstring(node).splitlines()[0]
        if getattr(getattr(node, "target", None), "id", None) == last:
            return after.value.value.splitlines()[0]
    raise InputError(f"{path}.py must define {last}, which {name} names.")


def _parsed(path):
    return ast.parse(path.read_text("utf-8"))


def page_of(name):
    """Returns the path of the page for a dotted name."""
    return f"api/{name}.md"


def api_pages():
    """Returns {path: text}: a page for each public name, and an index page."""
    lines = ["# API reference", ""]
    lines += ["After `import tbnets`, each name is `tbnets.NAME`.", ""]
    pages = {}
    for title, names in api_groups().items():
        lines += [f"## {title}", ""]
        for name in names:
            pages[page_of(name)] = f"::: tbnets.{name}\n"
            lines.append(f"- [`{name}`][tbnets.{name}]: {summary(name)}")
        lines.append("")
    # Shows only the types of arguments; most have no docstring.
    pages[page_of("checks")] += (
        f"    options: {{members: [{', '.join(TYPES)}], "
        "show_if_no_docstring: true, members_order: source}\n"
    )
    return {API: "\n".join(lines), **pages}


def notes_of(text):
    """Returns the comments at the start of a flag file, each on one line."""
    lines = re.match(r"(?:#.*\n)*", text)[0].splitlines()
    return re.sub(r"\n {2,}", " ", "\n".join(line[2:] for line in lines))


def configuration(path):
    """Returns a section about a flag file: description, command and flags."""
    text = path.read_text("utf-8")
    first, *notes = notes_of(text).splitlines()
    fields = [note.partition(": ") for note in notes]
    lines = [f"### {path.stem}", "", first, ""]
    for key, _, value in fields:
        if key == "Command":
            lines += [f"    {value}", ""]
    lines += [
        f"- {key}: {value}" for key, _, value in fields if key != "Command"
    ]
    flags = [line for line in text.splitlines() if line.startswith("--")]
    lines += ["", f'??? note "{len(flags)} flags"', ""]
    return "\n".join([*lines, *(f"        {flag}" for flag in flags), ""])


def configurations_page():
    """Returns the page that lists configs/."""
    lines = ["# Configurations", ""]
    lines += ["`tbnets train --flagfile=NAME` runs a configuration."]
    lines += ["[Recipes](recipes.md) compute features before a run.", ""]
    for title, beginnings in KINDS.items():
        lines += [f"## {title}", ""]
        for path in sorted((ROOT / "configs").glob("*.flags")):
            if path.stem.split("_")[0] in beginnings:
                lines.append(configuration(path))
    lines += ["## Recipes", ""]
    for path in sorted((ROOT / "configs" / "features").glob("*.flags")):
        lines.append(configuration(path))
    return "\n".join(lines)


def notebook_page(path):
    """Returns a notebook as Markdown."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        is_code = cell["cell_type"] == "code"
        parts.append(f"```python\n{text}\n```" if is_code else text)
    parts.insert(
        1, f"This page shows the cells of [the notebook]({path.name})."
    )
    return "\n\n".join(parts) + "\n"


def made_pages():
    """Returns {path in the site: text} of the pages that are not in docs/."""
    pages = {name: (ROOT / name).read_text("utf-8") for name in OUTSIDE}
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        pages[f"notebooks/{path.stem}.md"] = notebook_page(path)
    pages[CONFIGURATIONS] = configurations_page()
    return {**pages, **api_pages()}


def site_link(page, link):
    """Converts a repository link on a page to a link within the site."""
    path, hash_, anchor = link.partition("#")
    if not path or ":" in path:
        return link
    stands_outside = page in OUTSIDE
    folder = posixpath.dirname(page if stands_outside else f"docs/{page}")
    target = posixpath.normpath(posixpath.join(folder, path))
    target = CONFIGURATIONS if target == "configs" else target
    return relative(page, target.removeprefix("docs/")) + hash_ + anchor


def relative(page, target):
    """Returns the relative link from a page of the site to a file."""
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def site_text(page, text):
    """Returns the text of a page with links for the site.

    `` `tbnets.NAME` `` and `` `configs/NAME.flags` `` become links.
    """
    if page.startswith("api/") or page == CONFIGURATIONS:
        return text
    text = re.sub(
        r"\]\(([^)\s]+)\)",
        lambda match: f"]({site_link(page, match[1])})",
        text,
    )
    place = relative(page, CONFIGURATIONS)
    text = FLAGFILE.sub(rf"[\g<0>]({place}#\1)", text)
    return NAME.sub(r"[\g<0>][tbnets.\1]", text)


def on_config(config):
    """Adds the pages of the API and of the zoo to the navigation."""
    groups = [
        {title: [{name.rpartition(".")[2]: page_of(name)} for name in names]}
        for title, names in api_groups().items()
    ]
    pages = {"API": [API, *groups], "The zoo's models": [ZOO, *CARDS]}
    config.nav = [_filled(entry, pages) for entry in config.nav]
    return config


def _filled(entry, made):
    if isinstance(entry, str):
        return {entry: made[entry]} if entry in made else entry
    return {
        title: [_filled(one, made) for one in pages]
        if isinstance(pages, list)
        else pages
        for title, pages in entry.items()
    }


def on_files(files, config):
    """Adds the generated pages."""
    from mkdocs.structure.files import File

    for name, text in made_pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown, page, **_):
    """Converts the links of a page for the site."""
    return site_text(page.file.src_uri, markdown)
