"""Converts the tbnets docstrings to Markdown for the API pages."""

import re
import textwrap

import griffe

import tbnets

EXAMPLE = re.compile(r"^( *)Example:\n((?:\1 +.*\n|\n)+)", re.M)
SOURCE = re.compile(r"^Source: ((?:.+\n)+)", re.M)
NAME = re.compile(rf"`(?:tbnets\.)?({'|'.join(tbnets.__all__)})`")


def _fence(match):
    code = textwrap.indent(textwrap.dedent(match[2]).strip(), "    ")
    return f"Example:\n    ```python\n{code}\n    ```\n\n"


def _paragraph(match):
    lines = [line.strip() for line in match[1].splitlines()]
    return "\n".join(["*Source*:", *lines, ""])


def as_markdown(text):
    """Converts a docstring with Google-style sections to Markdown."""
    text = EXAMPLE.sub(_fence, text + "\n")
    text = SOURCE.sub(_paragraph, text)
    text = re.sub(r"^::$", "", text, flags=re.M)
    text = re.sub(r"::$", ":", text, flags=re.M)
    return NAME.sub(r"[`\1`][tbnets.\1]", text)


class Docstrings(griffe.Extension):
    """A griffe extension that converts each docstring to Markdown."""

    def on_object(self, *, obj, **_):
        """Converts a docstring; `Args` of a named tuple become `Attributes`."""
        if obj.docstring:
            text = as_markdown(obj.docstring.value)
            if obj.is_class and "NamedTuple" in map(str, obj.bases):
                text = text.replace("\nArgs:\n", "\nAttributes:\n")
            obj.docstring.value = text
