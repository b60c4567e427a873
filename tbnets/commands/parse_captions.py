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
is counted. docs/trees.md shows the files and how good the trees are.
"""

import collections
import dataclasses
import pathlib
import time

from tbnets.commands.data_flags import Captions
from tbnets.data import captions as caption_files
from tbnets.flags.flag import REQUIRED, Whole, flag
from tbnets.progress import progress_bar
from tbnets.text import parsing
from tbnets.text.parsers import DEFAULT_URL, PARSERS

MOST_PRINTED = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Captions):
    """Which captions are parsed, by what, and where trees go."""

    output: str = flag(REQUIRED, "File of trees to write (.jsonl).")
    parser: str = flag(
        "embedded",
        "embedded: TextBlob's tagger and a grammar, no download; corenlp: a "
        "server (Niu 2017); right_branching: no syntax, to compare with.",
        choices=list(PARSERS),
    )
    corenlp_url: str = flag(DEFAULT_URL, "The server, of --parser=corenlp.")
    cache: str = flag(
        "", "File of what is parsed already; by default OUTPUT.cache."
    )
    processes: Whole = flag(0, "Processes that parse; 0: one a core.")


def read_captions(options):
    """Returns (id, caption) of all captions; ids are IMAGE#NUMBER."""
    found = []
    for split in options.names():
        records = caption_files.read_captions(*options.where, split)
        found += [
            (f"{name}#{number}", records.captions[caption])
            for name, rows in zip(records.image_ids, records.caption_rows())
            for number, caption in enumerate(rows)
        ]
    return found


def parse(options, captions):
    """Parses with a progress bar."""
    texts = [caption for _, caption in captions]
    count = len(set(texts))
    with progress_bar(count, "parsing", "caption", leave=True) as bar:
        return parsing.parse_captions(
            texts,
            options.parser,
            cache=options.cache or f"{options.output}.cache",
            processes=options.processes or None,
            corenlp_url=options.corenlp_url,
            progress=bar.update,
        )


def report(options, captions, parses, seconds):
    """Prints what was written."""
    failed = sum(caption in parses.failures for _, caption in captions)
    print(
        f"parsed    {len(parses.trees) - parses.num_cached} captions by "
        f"{options.parser} in {seconds:.1f} s, {parses.num_cached} were known\n"
        f"trees     {options.output}: {len(captions)} captions, {failed} of "
        "them right-branching, as they did not parse"
    )
    reasons = collections.Counter(parses.failures.values())
    for reason, count in reasons.most_common(MOST_PRINTED):
        print(f"          {count} x {reason}")
    print(f"Next, train with --text_encoder=h_lstm --trees={options.output}")


def main(options):
    """Parses by the flags."""
    captions = read_captions(options)
    pathlib.Path(options.output).parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    parses = parse(options, captions)
    parsing.write_parses(options.output, captions, parses)
    report(options, captions, parses, time.perf_counter() - start)
