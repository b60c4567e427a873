r"""Compares a parser's phrases with those that others marked.

With the phrases of Flickr30K Entities, noun phrases alone:

  python tools/compare_parses.py --entities=flickr8k/entities \
      --captions=flickr8k/dataset_flickr8k.json --splits=test

With gold trees, one bracketed tree a line in each file of a folder, such as
those of the embedded scenes (tools/make_scenes.py):

  python tools/compare_parses.py --gold_trees=scenes/trees

Prints how many phrases both have (found), how many of the others' the parser
has not (missed), and how many it alone has (extra).
"""

import dataclasses
import sys

from measuring import tree_comparison

from tbnets import cli
from tbnets.checks import per_cent
from tbnets.data import captions as caption_files
from tbnets.data.phrases import read_phrases
from tbnets.errors import InputError
from tbnets.progress import progress_bar
from tbnets.tasks.settings.flag import Whole, flag
from tbnets.text import parsing
from tbnets.text.parsing import DEFAULT_URL, PARSERS
from tbnets.text.trees import gold_rows, read_tree


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is compared with which parser."""

    entities: str = flag("", "Phrases of captions, as of Flickr30K Entities.")
    gold_trees: str = flag("", "Folder of gold trees (.txt).")
    captions: str = flag(
        "",
        "Karpathy's json, whose images are compared; without, all of "
        "--entities.",
    )
    splits: list[str] = flag(["test"], "Splits of --captions.")
    parser: str = flag(
        "embedded", "Whose phrases are compared.", choices=list(PARSERS)
    )
    corenlp_url: str = flag(DEFAULT_URL, "The server, of --parser=corenlp.")
    processes: Whole = flag(0, "Processes that parse; 0: one a core.")


def parse(options, captions):
    """Returns the tree of each caption; tells how many did not parse."""
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
        f"{len(parses.failures)} distinct ones did not parse"
    )
    return [read_tree(parses.trees[caption]) for caption in captions]


def show(title, parsed, others):
    """Prints a line of the table."""
    found = tree_comparison.compare(parsed, others)
    print(
        f"{title:<34} {found.found:>7} {found.missed:>7} {found.extra:>7} "
        f"{per_cent(found.recall):>7} {per_cent(found.precision):>9}"
    )


def compare_entities(options):
    """Compares noun phrases with those that Entities marks and boxes."""
    images = None
    if options.captions:
        split = "+".join(options.splits)
        images = caption_files.read_captions(
            "karpathy", options.captions, split
        )
    regions = read_phrases(options.entities, images)
    captions = regions.images.captions
    spans = [[] for _ in captions]
    for caption, span in zip(regions.phrase_to_caption, regions.spans):
        spans[caption].append(span)
    marked = [
        tree_comparison.letter_spans(caption.split(), one)
        for caption, one in zip(captions, spans)
    ]
    trees = parse(options, captions)
    heading()
    for title, base in (("all noun phrases", False), ("innermost ones", True)):
        found = [tree_comparison.noun_phrases(tree, base) for tree in trees]
        show(title, found, marked)


def compare_gold(options):
    """Compares phrases with those of gold trees."""
    *_, names, captions, texts = zip(*gold_rows(options.gold_trees))
    gold = [read_tree(*row) for row in zip(texts, names)]
    trees = parse(options, captions)
    heading()
    for title, phrases in (
        ("noun phrases", tree_comparison.noun_phrases),
        ("phrases of two words or more", tree_comparison.phrases),
        ("the same with their kind", tree_comparison.kinds),
    ):
        show(title, [*map(phrases, trees)], [*map(phrases, gold)])


def heading():
    """Prints the table's first line."""
    print(
        f"{'':<34} {'found':>7} {'missed':>7} {'extra':>7} {'recall':>7} "
        f"{'precision':>9}"
    )


def main(options):
    """Compares by the flags."""
    if bool(options.entities) == bool(options.gold_trees):
        raise InputError(
            "`--entities` or `--gold_trees` must be given. Received: "
            f"--entities={options.entities}, --gold_trees="
            f"{options.gold_trees}. Name one folder."
        )
    if options.entities:
        compare_entities(options)
    else:
        compare_gold(options)


if __name__ == "__main__":
    cli.run_tool(sys.modules[__name__])
