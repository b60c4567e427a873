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

import pathlib
import time

import tqdm
from absl import flags

from tbnets import startup
from tbnets.data import captions as caption_files
from tbnets.data.format_guess import usual_format
from tbnets.errors import InputError
from tbnets.text import parsing
from tbnets.text.parsers import DEFAULT_URL, PARSERS

_CAPTIONS = flags.DEFINE_string(
    "captions",
    None,
    "File or folder of captions; may hold {split}.",
    required=True,
)
_OUTPUT = flags.DEFINE_string(
    "output", None, "File of trees to write (.jsonl).", required=True
)
_FORMAT = flags.DEFINE_enum(
    "captions_format",
    None,
    list(caption_files.READERS),
    "Format of --captions; docs/data_formats.md describes each. Not given, "
    "table for a .csv, .tsv or .jsonl, else karpathy.",
)
_SPLITS = flags.DEFINE_list(
    "splits", None, "Splits whose captions are parsed; by default all."
)
_PARSER = flags.DEFINE_enum(
    "parser",
    "embedded",
    list(PARSERS),
    "embedded: TextBlob's tagger and a grammar for captions, no download; "
    "corenlp: a server (Niu 2017); right_branching: no syntax, to compare "
    "with.",
)
_URL = flags.DEFINE_string(
    "corenlp_url", DEFAULT_URL, "The server, of --parser=corenlp."
)
_CACHE = flags.DEFINE_string(
    "cache", None, "File of what is parsed already; by default OUTPUT.cache."
)
_PROCESSES = flags.DEFINE_integer(
    "processes", 0, "Processes that parse; 0: one a core.", lower_bound=0
)

MOST_PRINTED = 5


def read_captions():
    """Returns (id, caption) of all captions; ids are IMAGE#NUMBER."""
    where = (_FORMAT.value or usual_format(_CAPTIONS.value), _CAPTIONS.value)
    found = []
    for split in _SPLITS.value or caption_files.list_splits(*where):
        records = caption_files.read_captions(*where, split)
        for row, rows in enumerate(records.caption_rows()):
            name = records.image_ids[row]
            found += [
                (f"{name}#{number}", records.captions[caption])
                for number, caption in enumerate(rows)
            ]
    return found


def parse(captions):
    """Parses with a progress bar."""
    with tqdm.tqdm(
        total=len({caption for _, caption in captions}),
        unit="caption",
        smoothing=0.1,
        disable=None,
    ) as bar:
        return parsing.parse_captions(
            [caption for _, caption in captions],
            _PARSER.value,
            cache=_CACHE.value or f"{_OUTPUT.value}.cache",
            processes=_PROCESSES.value or None,
            corenlp_url=_URL.value,
            progress=bar.update,
        )


def report(captions, parses, seconds):
    """Prints what was written."""
    failed = sum(caption in parses.failures for _, caption in captions)
    print(
        f"parsed    {len(parses.trees) - parses.num_cached} captions by "
        f"{_PARSER.value} in {seconds:.1f} s, {parses.num_cached} were known\n"
        f"trees     {_OUTPUT.value}: {len(captions)} captions, {failed} of "
        "them right-branching, as they did not parse"
    )
    reasons = parsing.count_reasons(parses.failures)
    for reason, count in reasons[:MOST_PRINTED]:
        print(f"          {count} x {reason}")
    print(
        "Next, train with --text_encoder=h_lstm --trees=" + str(_OUTPUT.value)
    )


def main(argv):
    """Parses by the flags."""
    if len(argv) > 1:
        raise InputError(
            "`parse_captions.py` takes flags only. Received: "
            f"{' '.join(argv[1:])}. Write --flag=value."
        )
    captions = read_captions()
    pathlib.Path(_OUTPUT.value).parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    parses = parse(captions)
    parsing.write_parses(_OUTPUT.value, captions, parses)
    report(captions, parses, time.perf_counter() - start)


if __name__ == "__main__":
    startup.run_tool(main)
