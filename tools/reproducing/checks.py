"""Finds numbers on pages and in flag files that no recorded file contains."""

import re

from reproducing import pages
from reproducing.measured import ROOT

_COMMAND = re.compile(r"\btools/\w+\.py|python -m |\btbnets [a-z]+ |--\w+=")
_GAP = r"[\s#]+"
_RECALLS = r"\d+\.\d/\d+\.\d/\d+\.\d"
_METRICS = {
    rf"{_RECALLS}(?={_GAP}image{_GAP}to{_GAP}text)": "test/image_to_text",
    rf"{_RECALLS}(?={_GAP}text{_GAP}to{_GAP}image)": "test/text_to_image",
    rf"(?<=test R@1/5/10 ){_RECALLS}(?!{_GAP}image)": "test/phrase_to_region",
    rf"(?<=dev ){_RECALLS}": "dev/phrase_to_region",
}
_NUMBERS = {
    r"(?<=mAP )\d+\.\d": "test/phrase_to_region/mean_average_precision",
    r"(?<=recall sum )\d+\.\d": "test/recall_sum",
    rf"\d+\.\d(?= % of{_GAP}the{_GAP}phrases)": (
        "test/correspondence_accuracy"
    ),
    r"\d+\.\d(?= % by chance)": "test/correspondence_chance",
    r"\d+\.\d(?= % at most)": "test/correspondence_upper_bound",
    r"(?<=recall sum \d{3}\.\d, dev )\d+\.\d": "dev/recall_sum",
}


def findings(measured, root=ROOT):
    """Returns a message for each outdated page and each unexplained number."""
    problems = []
    generated = generated_files(measured, root)
    for path, text in generated.items():
        if path.read_text("utf-8") != text:
            problems.append(
                f"{path.relative_to(root)}: expected the text generated from "
                "docs/measured; found other text. Run python "
                "tools/reproduce.py."
            )
    for path in pages.all_pages(root):
        for line, text in _unexplained(path):
            problems.append(f"{path.relative_to(root)}:{line}: {text}")
    return problems


def generated_files(measured, root=ROOT):
    """Returns a dict {path: text} of the generated pages and flag files."""
    texts = pages.generated_pages(measured, root)
    for name, row in measured.recorded.items():
        path = root / "configs" / f"{name}.flags"
        if path.exists():
            texts[path] = with_expected_numbers(path.read_text("utf-8"), row)
    return texts


def _unexplained(path):
    """Yields (line, problem) for each result in a table without a command.

    The command must be in the section of the table or at the top of the page.
    In README.md, all tables must be generated.
    """
    section, top, fenced = [], [], False
    page = pages.without_parts(path.read_text("utf-8"))
    for line, text in enumerate([*page.splitlines(), "## end"], 1):
        fenced ^= text.startswith("```")
        if text.startswith("#") and not fenced:
            prose = [x for _, x in section if not x.startswith("|")]
            top = top or [x for _, x in section]
            has_command = _COMMAND.search("\n".join([*top, *prose]))
            if not has_command or path.name == "README.md":
                yield from _results(section)
            section = []
        section.append((line, text))


def _results(section):
    """Yields (line, problem) for numbers like 1.5 in tables of a section."""
    rows = []
    for line, text in [*section, (0, "")]:
        if text.startswith("|"):
            cells = re.split(r"(?<!\\)\|", text.strip())[1:-1]
            rows.append((line, [cell.strip() for cell in cells]))
            continue
        for row_line, cells in rows[2:]:
            for column, cell in zip(rows[0][1], cells):
                if re.match(r"\**\d+\.\d", cell):
                    yield (
                        row_line,
                        "expected a generated table, or a command; found "
                        f"{cell}, column {column!r}, row {cells[0]!r}",
                    )
        rows = []


def with_expected_numbers(text, row):
    """Returns a flag file with a row's numbers after "Expected:"."""
    before, mark, remainder = text.partition("# Expected:")
    expected, source, remainder = remainder.partition("# Source:")
    for pattern, metric in _METRICS.items():
        keys = [f"{metric}/recall_at_{rank}" for rank in (1, 5, 10)]
        expected = _with(expected, pattern, keys, row)
    for pattern, metric in _NUMBERS.items():
        expected = _with(expected, pattern, [metric], row)
    return before + mark + expected + source + remainder


def _with(text, pattern, keys, row):
    if not row.values.keys() >= {*keys}:
        return text
    return re.sub(pattern, "/".join(row.values[key] for key in keys), text)
