r"""Compares the phrases that a parser finds with annotated phrases.

With the noun phrases of Flickr30K Entities:

  python tools/compare_parses.py --entities=flickr8k/entities \
      --captions=flickr8k/dataset_flickr8k.json --splits=test

With a folder of gold trees, one bracketed tree per line:

  python tools/compare_parses.py --gold_trees=scenes/trees

Prints the numbers of annotated phrases that the parser found and missed, and
the number of its extra phrases. Phrases are equal if they consist of the same
characters of a caption. Spaces are not counted, so tokenization does not
matter.
"""

import dataclasses
import sys

import numpy as np

from tbnets import cli
from tbnets.checks import per_cent
from tbnets.data import captions as caption_files
from tbnets.data.phrases import read_phrases
from tbnets.progress import progress_bar
from tbnets.tasks.settings.flag import Whole, flag
from tbnets.text import parsing
from tbnets.text.parsing import DEFAULT_URL, PARSERS
from tbnets.text.trees import Tree, gold_rows, phrase_type, read_tree


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags for the annotations and the parser."""

    entities: str = flag("", "Folder of phrases of Flickr30K Entities.")
    gold_trees: str = flag("", "Folder of gold trees (.txt).")
    captions: str = flag(
        "",
        "Karpathy's JSON file of the images to compare; default: all images "
        "of --entities.",
    )
    splits: list[str] = flag(["test"], "Splits of --captions.")
    parser: str = flag("embedded", "Parser to compare.", choices=list(PARSERS))
    corenlp_url: str = flag(DEFAULT_URL, "Server of --parser=corenlp.")
    processes: Whole = flag(0, "Parsing processes; 0: one per core.")


def compare(parsed, annotated) -> tuple[int, int, int]:
    """Counts the phrases that the parser found, missed and added."""
    pairs = list(zip(parsed, annotated, strict=True))
    found = sum(len(predicted & true) for predicted, true in pairs)
    missed = sum(len(true - predicted) for predicted, true in pairs)
    extra = sum(len(predicted - true) for predicted, true in pairs)
    return found, missed, extra


def letter_spans(words, spans) -> set[tuple[int, int]]:
    """Converts word spans to character spans, not counting spaces."""
    ends = np.cumsum([0, *map(len, words)])
    return {(int(ends[start]), int(ends[end])) for start, end in spans}


def noun_phrases(tree: Tree, base=False) -> set[tuple[int, int]]:
    """Returns the character spans of all noun phrases, or of innermost ones."""
    spans = {span[1:] for span in tree.phrases("NP")}
    if base:
        spans = {s for s in spans if sum(_is_within(x, s) for x in spans) == 1}
    return letter_spans(tree.words, spans)


def _is_within(span, other):
    return other[0] <= span[0] and span[1] <= other[1]


def phrases(tree: Tree) -> set[tuple[int, int]]:
    """Returns the character spans of phrases of two or more words."""
    return {(start, end) for start, end, _ in kinds(tree)}


def kinds(tree: Tree) -> set[tuple[int, int, str]]:
    """Returns (start, end, kind) for each phrase of two or more words."""
    ends = np.cumsum([0, *map(len, tree.words)])
    return {
        (int(ends[start]), int(ends[end]), phrase_type(label))
        for (start, end), text, label in zip(
            tree.spans(), tree.texts, tree.labels
        )
        if not text and end - start > 1
    }


def parse(options, captions):
    """Returns the trees of captions; prints the number of failures."""
    with progress_bar(len(set(captions)), "parsing", "caption") as bar:
        parses = parsing.parse_captions(
            captions,
            options.parser,
            processes=options.processes or None,
            corenlp_url=options.corenlp_url,
            progress=bar.update,
        )
    print(
        f"{len(captions)} captions by {options.parser}, "
        f"{len(parses.failures)} distinct captions failed"
    )
    return [read_tree(parses.trees[caption]) for caption in captions]


def show(title, parsed, annotated):
    """Prints a line of the table."""
    found, missed, extra = compare(parsed, annotated)
    recall, precision = (
        found / max(1, found + others) for others in (missed, extra)
    )
    print(
        f"{title:<34} {found:>7} {missed:>7} {extra:>7} "
        f"{per_cent(recall):>7} {per_cent(precision):>9}"
    )


def compare_entities(options):
    """Compares the parser's noun phrases with Flickr30K Entities' phrases."""
    images = None
    if options.captions:
        split = "+".join(options.splits)
        images = caption_files.read_captions(options.captions, split)
    regions = read_phrases(options.entities, images)
    captions = regions.images.captions
    spans = [[] for _ in captions]
    for caption, span in zip(regions.phrase_to_caption, regions.spans):
        spans[caption].append(span)
    marked = [
        letter_spans(caption.split(), caption_spans)
        for caption, caption_spans in zip(captions, spans)
    ]
    trees = parse(options, captions)
    heading()
    for title, base in (("all noun phrases", False), ("innermost ones", True)):
        parsed = [noun_phrases(tree, base) for tree in trees]
        show(title, parsed, marked)


def compare_gold(options):
    """Compares the parser's phrases with the phrases of gold trees."""
    *_, names, captions, texts = zip(*gold_rows(options.gold_trees))
    gold = [read_tree(*row) for row in zip(texts, names)]
    trees = parse(options, captions)
    heading()
    for title, phrases_of in (
        ("noun phrases", noun_phrases),
        ("phrases of two words or more", phrases),
        ("these phrases with their kind", kinds),
    ):
        show(title, [*map(phrases_of, trees)], [*map(phrases_of, gold)])


def heading():
    """Prints the titles of the columns."""
    print(
        f"{'':<34} {'found':>7} {'missed':>7} {'extra':>7} {'recall':>7} "
        f"{'precision':>9}"
    )


def main(options):
    """Compares the parser with `--entities` or with `--gold_trees`."""
    if options.entities:
        compare_entities(options)
    else:
        compare_gold(options)


if __name__ == "__main__":
    cli.run_tool(sys.modules[__name__])
