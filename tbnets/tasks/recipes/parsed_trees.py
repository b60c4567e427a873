"""Trees of texts: parsed, with a progress bar, into one file."""

import collections
import dataclasses
import hashlib
import json
import time

import tqdm

from tbnets.cores import usable_cores
from tbnets.progress import progress_bar
from tbnets.tasks.recipes.texts import texts_by_id
from tbnets.tasks.recipes.thing import Thing
from tbnets.tasks.settings.flag import Whole, flag
from tbnets.text import parsing
from tbnets.text.parsers import DEFAULT_URL, PARSERS, open_parser

MOST_PRINTED = 5
FILE = "trees.jsonl"
PROBE = 40
"""Captions that are parsed to learn what all of them cost."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trees:
    """By what texts are parsed."""

    parser: str = flag(
        "embedded",
        "embedded: TextBlob's tagger and a grammar, no download; corenlp: a "
        "server (Niu 2017); right_branching: no syntax, to compare with.",
        choices=list(PARSERS),
    )
    corenlp_url: str = flag(
        DEFAULT_URL, "The server, of --parser=corenlp.", free=True
    )
    processes: Whole = flag(
        0, "Processes that parse; 0: one a core.", free=True
    )


def make_trees(values, texts, path, cache):
    """Parses texts into a file of trees, or goes on with that.

    Args:
        values: `Trees`.
        texts: list of (id, text).
        path: of the file.
        cache: file of what is parsed already.
    """
    start = time.perf_counter()
    captions = [caption for _, caption in texts]
    count = len(set(captions))
    how = {"processes": values.processes or None, "cache": cache}
    with progress_bar(count, "parsing", "caption", leave=True) as bar:
        how |= {"corenlp_url": values.corenlp_url, "progress": bar.update}
        parses = parsing.parse_captions(captions, values.parser, **how)
    parsing.write_parses(path, texts, parses)
    failed = sum(caption in parses.failures for caption in captions)
    tqdm.tqdm.write(
        f"parsed    {len(parses.trees) - parses.num_cached} captions by "
        f"{values.parser} in {time.perf_counter() - start:.1f} s, "
        f"{parses.num_cached} were known\n"
        f"trees     {path}: {len(texts)} captions, {failed} of them "
        "right-branching, as they did not parse"
    )
    reasons = collections.Counter(parses.failures.values())
    for reason, count in reasons.most_common(MOST_PRINTED):
        tqdm.tqdm.write(f"          {count} x {reason}")


class TreesOfTexts(Thing):
    """Trees of the texts of a run that a recipe makes; see `Thing`."""

    verb, group = "parse_captions", Trees
    unit = "text"

    def __init__(self, recipe, data):
        super().__init__(recipe, data)
        self._texts = texts_by_id(data)
        self.count = len(self._texts)

    @property
    def path(self):
        """The file of trees in its folder."""
        return self.folder / FILE

    def inputs(self):
        """Returns a sha256 of all ids and texts."""
        return hashlib.sha256(json.dumps(self._texts).encode()).hexdigest()

    def is_made(self, folder):
        """Tells whether the trees lie in a folder; they come whole."""
        return (folder / FILE).is_file()

    def check(self):
        """Refuses a parser that is not installed, or does not answer."""
        open_parser(self.recipe.values.parser, self.recipe.values.corenlp_url)

    def make(self, folder):
        """Parses the texts, or goes on."""
        folder.mkdir(exist_ok=True)
        cache = folder / f"{FILE}.cache"
        make_trees(self.recipe.values, self._texts, folder / FILE, cache)
        cache.unlink()

    def estimate(self, scratch):
        """Returns what all of it takes: (bytes, seconds), by parsing a few."""
        values = dataclasses.replace(self.recipe.values, processes=1)
        texts, path = self._texts, scratch / FILE
        seconds = []
        for few in (texts[:1], texts[1 : 1 + PROBE]):  # It opens the parser.
            start = time.perf_counter()
            make_trees(values, few, path, None)
            seconds.append(time.perf_counter() - start)
        times = (len(texts) - 1) / max(len(few), 1)
        at_once = self.recipe.values.processes or usable_cores()
        size = int(times * path.stat().st_size)
        return size, seconds[0] + times * seconds[1] / at_once
