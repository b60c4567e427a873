"""Settings -> the constituency trees of captions."""

import functools
import os
import re

from tbnets.checked_files import CheckedFile
from tbnets.checked_files import shown
from tbnets.tasks import inputs
from tbnets.text.parsing import read_parses
from tbnets.text.trees import read_tree

_NO_LETTERS = re.compile(r"[\W_]+")


def load_trees(settings, records):
    """Returns the `Tree` of each caption of some records.

    Args:
        settings: the run's settings.
        records: `CaptionedImages` of a split.

    Raises:
        FileNotFoundError, ValueError: there are no trees, one is damaged, or
            they are those of other captions; names file, line and caption.
    """
    if settings.trees:
        path = inputs.resolve(settings, settings.trees)
        if not path.exists():
            raise inputs.nowhere(settings, "trees", path)
        return _parsed_trees(path, records)
    if settings.scenes:
        return _scene_trees(settings, records)
    raise ValueError(
        "`--trees` must name the trees of the captions. Received: --trees= "
        "with --text_encoder=h_lstm. Make them by tools/parse_captions.py, or "
        "set --scenes for the embedded data set."
    )


def _parsed_trees(path, records):
    """Returns the trees of captions from a file, found by their texts."""
    known = _read(os.fspath(path), os.path.getmtime(path))
    missing = [text for text in records.captions if text not in known]
    if missing:
        raise ValueError(
            "`--trees` must hold the tree of every caption. Received: "
            f"--trees={path} without {len(missing)} of {records.num_captions} "
            f"captions of {records.path}, split {records.split}, first "
            f"{shown(missing[0])}. Parse these captions by "
            "tools/parse_captions.py."
        )
    return [known[text] for text in records.captions]


@functools.lru_cache(maxsize=1)
def _read(path, changed):
    """Returns caption -> `Tree` of a file; reads it once for all splits."""
    return {row.caption: row.tree for row in read_parses(path)}


def letters(text):
    """Returns what two ways of writing one sentence have in common.

    Letters and digits in lower case, without blanks and punctuation: parsers
    write both in other ways than people do.
    """
    return _NO_LETTERS.sub("", text).casefold()


def _scene_trees(settings, records):
    """Returns the gold trees of scenes, which lie beside their photos."""
    folder = inputs.from_start(settings, settings.scenes) / "trees"
    trees = [None] * records.num_captions
    for image, captions in enumerate(records.caption_rows()):
        name = records.file_name(image).rpartition(".")[0]
        file = CheckedFile(folder / f"{name}.txt")
        lines, _ = file.lines()
        if len(lines) != len(captions):
            file.report(
                None,
                f"expected {len(captions)} trees, one for each caption of "
                f"{records.image_ids[image]}; found {len(lines)}. Render the "
                "scenes again.",
            )
        for number, (row, line) in enumerate(zip(captions, lines), start=1):
            trees[row] = _checked(line, records.captions[row], file, number)
    return trees


def _checked(text, caption, file, number):
    """Returns a tree that is that of a caption."""
    tree = read_tree(text, f"{number} of {file.path}")
    if letters("".join(tree.words)) != letters(caption):
        file.report(
            number,
            f"expected the tree of {shown(caption)}; found that of "
            f"{shown(' '.join(tree.words))}. Parse these captions.",
        )
    return tree
