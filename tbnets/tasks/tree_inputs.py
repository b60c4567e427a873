"""Settings -> the constituency trees of captions."""

import re

from tbnets.checked_files import CheckedFile
from tbnets.checked_files import shown
from tbnets.tasks import inputs
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
        raise NotImplementedError(path)
    if settings.scenes:
        return _scene_trees(settings, records)
    raise ValueError(
        "`--trees` must name the trees of the captions. Received: --trees= "
        "with --text_encoder=tree. Make them by tools/parse_captions.py, or "
        "set --scenes for the embedded data set."
    )


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
