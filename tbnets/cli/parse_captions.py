r"""Parse captions into constituency trees, for --text_encoder=h_lstm.

For example, with the embedded parser (requires an extra: pip install
"tbnets[parse]"):

  tbnets parse_captions --captions=flickr8k/dataset_flickr8k.json \
      --output=trees/flickr8k.jsonl

Or with a running CoreNLP server:

  tbnets parse_captions --captions=flickr8k/dataset_flickr8k.json \
      --parser=corenlp --corenlp_url=http://localhost:9000 \
      --output=trees/flickr8k_corenlp.jsonl

Then train with --text_encoder=h_lstm --trees=trees/flickr8k.jsonl.

Each distinct caption is parsed once, by several processes, and the trees are
cached in OUTPUT.cache. If the command is interrupted, run it again: it resumes.
If a caption cannot be parsed, a right-branching tree is written for it.
docs/trees.md describes the files and the quality of the trees.
"""

import dataclasses
import pathlib

from tbnets.cli.data_flags import CaptionFlags
from tbnets.tasks.recipes import text_features
from tbnets.tasks.recipes.text_features import texts_by_id
from tbnets.tasks.settings.flag import REQUIRED, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(text_features.Trees, CaptionFlags):
    """Flags for the captions, the parser and the file of trees."""

    output: str = flag(REQUIRED, "File of trees to write (.jsonl).")
    cache: str = flag("", "Cache of parsed captions; default: OUTPUT.cache.")


def main(options):
    """Parses the captions."""
    texts = texts_by_id(options.data(), options.names())
    pathlib.Path(options.output).parent.mkdir(parents=True, exist_ok=True)
    cache = options.cache or f"{options.output}.cache"
    text_features.make_trees(options, texts, options.output, cache)
    print(f"Next, train with --text_encoder=h_lstm --trees={options.output}")
