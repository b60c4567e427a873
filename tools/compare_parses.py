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

import tqdm
from absl import flags

from tbnets import startup
from tbnets.data import captions as caption_files
from tbnets.data.phrases import read_phrases
from tbnets.errors import InputError
from tbnets.rounding import per_cent
from tbnets.text import parsing, tree_comparison
from tbnets.text.parsers import DEFAULT_URL, PARSERS
from tbnets.text.tree_files import read_gold_trees
from tbnets.text.trees import read_tree

_ENTITIES = flags.DEFINE_string(
    "entities", None, "Phrases of captions, as of Flickr30K Entities."
)
_GOLD = flags.DEFINE_string("gold_trees", None, "Folder of gold trees (.txt).")
_CAPTIONS = flags.DEFINE_string(
    "captions",
    None,
    "Karpathy's json, whose images are compared; without, all of --entities.",
)
_SPLITS = flags.DEFINE_list("splits", ["test"], "Splits of --captions.")
_PARSER = flags.DEFINE_enum(
    "parser", "embedded", list(PARSERS), "Whose phrases are compared."
)
_URL = flags.DEFINE_string(
    "corenlp_url", DEFAULT_URL, "The server, of --parser=corenlp."
)
_PROCESSES = flags.DEFINE_integer(
    "processes", 0, "Processes that parse; 0: one a core.", lower_bound=0
)


def parse(captions):
    """Returns the tree of each caption; tells how many did not parse."""
    with tqdm.tqdm(
        total=len(set(captions)), unit="caption", disable=None
    ) as bar:
        parses = parsing.parse_captions(
            captions,
            _PARSER.value,
            processes=_PROCESSES.value or None,
            corenlp_url=_URL.value,
            progress=bar.update,
        )
    print(
        f"{len(captions)} captions by {_PARSER.value}, "
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


def compare_entities():
    """Compares noun phrases with those that Entities marks and boxes."""
    images = None
    if _CAPTIONS.value:
        split = "+".join(_SPLITS.value)
        images = caption_files.read_captions("karpathy", _CAPTIONS.value, split)
    regions = read_phrases(_ENTITIES.value, images)
    captions = regions.images.captions
    spans = [[] for _ in captions]
    for caption, span in zip(regions.phrase_to_caption, regions.spans):
        spans[caption].append(span)
    marked = [
        tree_comparison.letter_spans(caption.split(), one)
        for caption, one in zip(captions, spans)
    ]
    trees = parse(captions)
    heading()
    for title, base in (("all noun phrases", False), ("innermost ones", True)):
        found = [tree_comparison.noun_phrases(tree, base) for tree in trees]
        show(title, found, marked)


def compare_gold():
    """Compares phrases with those of gold trees."""
    rows = read_gold_trees(_GOLD.value)
    gold = [row.tree for row in rows]
    trees = parse([row.caption for row in rows])
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


def main(argv):
    """Compares by the flags."""
    if len(argv) > 1 or bool(_ENTITIES.value) == bool(_GOLD.value):
        raise InputError(
            "`compare_parses.py` must be given one of --entities and "
            "--gold_trees, and nothing but flags. Received: "
            f"{' '.join(argv[1:]) or 'no other words'}, --entities="
            f"{_ENTITIES.value}, --gold_trees={_GOLD.value}. Name one folder."
        )
    if _ENTITIES.value:
        compare_entities()
    else:
        compare_gold()


if __name__ == "__main__":
    startup.run_tool(main)
