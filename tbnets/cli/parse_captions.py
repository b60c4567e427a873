r"""Parses captions into constituency trees, for --text_encoder=h_lstm.

For instance, with the parser that downloads nothing (pip install
"tbnets[parse]"):

  python tools/parse_captions.py --captions=flickr8k/dataset_flickr8k.json \
      --output=trees/flickr8k.jsonl

or by a CoreNLP server that runs elsewhere:

  python tools/parse_captions.py --captions=flickr8k/dataset_flickr8k.json \
      --parser=corenlp --corenlp_url=http://localhost:9000 \
      --output=trees/flickr8k_corenlp.jsonl

Then train with --text_encoder=h_lstm --trees=trees/flickr8k.jsonl.

Each distinct caption is parsed once, in several processes. What is parsed
stands in OUTPUT.cache right away: stopped at any moment, the same command goes
on. A caption that a parser gives no tree for gets a right-branching one, and
is counted. With --shard=1/4 to --shard=4/4 several machines parse a share
each, which tools/join_store.py joins. docs/trees.md shows the files and how
good the trees are.
"""

import dataclasses
import pathlib

from tbnets.cli.data_flags import Shared
from tbnets.data.store.joining import take_share, tell_file
from tbnets.tasks.recipes import text_features
from tbnets.tasks.recipes.text_features import texts_by_id
from tbnets.tasks.settings.flag import REQUIRED, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(text_features.Trees, Shared):
    """Which captions are parsed, by what, and where trees go."""

    output: str = flag(REQUIRED, "File of trees to write (.jsonl).")
    cache: str = flag(
        "", "File of what is parsed already; by default OUTPUT.cache."
    )


def main(options):
    """Parses by the flags."""
    texts = texts_by_id(options.data(), options.names())
    rows, share = take_share(options.shard, texts)
    pathlib.Path(options.output).parent.mkdir(parents=True, exist_ok=True)
    cache = options.cache or f"{options.output}.cache"
    text_features.make_trees(options, texts[rows], options.output, cache)
    if share:
        tell_file(options.output, {"parser": options.parser, **share})
    line = f"Next, train with --text_encoder=h_lstm --trees={options.output}"
    print(options.next_line(line))
