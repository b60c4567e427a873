"""Parses captions into constituency trees and writes the trees to files."""

import json
import multiprocessing
import os
import re
import urllib.request
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple

from tbnets.errors import (
    InputError,
    UnreachableError,
    check_choice,
    import_extra,
)
from tbnets.files import CheckedFile, write_text
from tbnets.startup import usable_cores
from tbnets.text.trees import (
    MOST_LETTERS,
    MOST_WORDS,
    escaped,
    read_tree,
    right_branching,
)

# The `embedded` parser needs `pip install "tbnets[parse]"` and downloads no
# data. It runs TextBlob's tagger, then a cascade of NLTK's RegexpParser.

DEFAULT_URL = "http://localhost:9000"

# Words, clitics and punctuation, tokenised as in the Penn Treebank.
_CLITICS = r"['\u2019](?:s|ll|re|ve|d|m)\b"
_TOKEN = re.compile(
    rf"n['\u2019]t\b|{_CLITICS}|[^\W_]+?(?=n['\u2019]t\b)|[^\W_]+(?={_CLITICS})"
    r"|[^\W_]+(?:[-.'\u2019/][^\W_]+)*|[^\w\s]|_",
    re.IGNORECASE,
)

# Rules apply in order. OF, OFPP and PART (a participle or infinitive with its
# complements) are auxiliary labels, renamed below.
GRAMMAR = r"""
NP: {<PDT>?<DT|PRP\$|CD>+<RB|JJ.*|VBN|VBG|CD>*(<CC|,><JJ.*|VBN>+)*<NN.*>+}
    {<RB>?<JJ.*|CD>+(<CC|,><JJ.*>+)*<NN.*>+}
    {<NN.*>+}
    {<PRP|EX>}
    {<DT|CD><JJ>?}
NP: {<NP><POS><NP>}
OFPP: {<OF><NP>}
NP: {<NP><OFPP>+}
NP: {<NP>(<,><NP>)*<,>?<CC><NP>}
PP: {<IN|TO><NP>}
PP: {<JJ|RB><PP>}
PART: {<VBG|VBN|TO><RB>*<VB>?<RB|RP|JJ>*<NP>?<RB|RP>*<PP>*}
PP: {<IN><PART>}
PART: {<PART><PP>+}
PART: {<PART>(<,>?<CC><PART>)+}
VP: {<MD>?<RB>*<VBZ|VBP|VBD|VB>+<RB|RP>*<VB>?<JJ|NP>?<RB|RP>*<PART|PP|RB>*}
VP: {<VP>(<,>?<CC><VP>)+}
NP: {<NP><PP>+}
NP: {<NP><PART>+}
SBAR: {<WDT|WP|WRB|IN><NP>?<VP>}
NP: {<NP><SBAR>}
"""
_RENAMED = {"OF": "IN", "PART": "VP", "OFPP": "PP"}
_PUNCTUATION = {".", ",", ":", "``", "''", '"', "(", ")"}


def split_tokens(caption) -> list[str]:
    """Returns the words, clitics and punctuation marks of a caption."""
    return _TOKEN.findall(caption)


class EmbeddedParser:
    """Tags words and groups the tags into phrases with a grammar."""

    def __init__(self):
        taggers = import_extra("parse", "textblob.en.taggers")
        nltk = import_extra("parse", "nltk")
        self._tagger = taggers.PatternTagger()
        self._chunker = nltk.RegexpParser(GRAMMAR, root_label="S", loop=2)
        self._tree = nltk.Tree

    def parse(self, caption) -> str:
        """Returns the parse tree of a caption as a bracketed string."""
        tokens = split_tokens(caption)
        if not any(token[0].isalnum() for token in tokens):
            raise InputError("there are no words in it")
        tree = self._chunker.parse(self._tag(tokens))
        return self._written(self._rooted(tree))

    def _tag(self, tokens):
        # The first word's capital does not indicate a name. "/" separates words
        # from tags in the tagger's output.
        texts = [token.replace("/", "-") for token in tokens]
        texts[0] = texts[0].lower()
        tags = [tag for _, tag in self._tagger.tag(" ".join(texts), False)]
        if len(tags) != len(tokens):
            raise InputError("the tagger split it into different words")
        return [
            (token, "OF" if token.lower() == "of" else tag)
            for token, tag in zip(tokens, tags)
        ]

    def _rooted(self, tree):
        """Makes a phrase the root if only punctuation surrounds it."""
        inner = [
            position
            for position, child in enumerate(tree)
            if isinstance(child, self._tree) or child[1] not in _PUNCTUATION
        ]
        phrase = tree[inner[0]] if len(inner) == 1 else None
        if not isinstance(phrase, self._tree):
            return tree
        children = [*tree[: inner[0]], *phrase, *tree[inner[0] + 1 :]]
        return self._tree(phrase.label(), children)

    def _written(self, tree):
        if isinstance(tree, self._tree):
            label, inside = tree.label(), " ".join(map(self._written, tree))
        else:
            inside, label = map(escaped, tree)
        return f"({_RENAMED.get(label, label)} {inside})"


def _corenlp_parser(url):
    corenlp = import_extra("parse", "nltk.parse.corenlp")
    try:
        urllib.request.urlopen(url, timeout=10).close()
    except (OSError, ValueError) as error:
        raise UnreachableError(
            f"The CoreNLP server {url} does not respond "
            f"({getattr(error, 'reason', error)}). Start it with: java -mx4g "
            "-cp '*' edu.stanford.nlp.pipeline.StanfordCoreNLPServer"
        ) from error
    parser = corenlp.CoreNLPParser(url)
    return lambda caption: _joined(parser.parse_text(caption))


def right_branching_text(caption) -> str:
    """Returns the right-branching tree of a caption as a bracketed string.

    The tree is a baseline, and a fallback for captions on which a parser fails.
    Only the first 4096 words, and the first 200 letters of each word, are kept.
    A blank caption is treated as the word `-`.
    """
    words = [word[:MOST_LETTERS] for word in split_tokens(caption)] or ["-"]
    return right_branching(words[:MOST_WORDS]).bracketed()


PARSERS = "embedded", "corenlp", "right_branching"


def open_parser(name, corenlp_url=DEFAULT_URL):
    """Returns a function that parses a caption into a bracketed string.

    `name` is in `PARSERS`. Raises an error if a package is missing or the
    server does not respond.
    """
    check_choice("parser", name, PARSERS)
    if name == "embedded":
        return EmbeddedParser().parse
    if name == "corenlp":
        return _corenlp_parser(corenlp_url)
    return right_branching_text


def short_noun_phrases(caption) -> list[str]:
    """Returns the noun phrases of a caption that contain no other noun phrase.

    Raises ModuleNotFoundError if the packages of the `parse` extra are not
    installed.
    """
    if not any(token[0].isalnum() for token in split_tokens(caption)):
        return []
    tree = read_tree(open_parser("embedded")(caption))
    spans = {(start, end) for _, start, end in tree.phrases("NP")}
    short = [
        (start, end)
        for start, end in sorted(spans)
        if not any(
            start <= one and two <= end and (one, two) != (start, end)
            for one, two in spans
        )
    ]
    return [" ".join(tree.words[start:end]) for start, end in short]


def _joined(trees):
    texts = [" ".join(str(tree).split()) for tree in trees]
    if not texts:
        raise InputError("the parser did not find a sentence")
    return texts[0] if len(texts) == 1 else f"(S {' '.join(texts)})"


CHUNK = 64


class Parses(NamedTuple):
    """The result of `parse_captions`.

    Attributes:
        trees: {caption: bracketed tree}.
        failures: {caption: reason} for captions on which the parser failed.
            The trees of these captions are right-branching.
        num_cached: number of distinct captions that were read from the cache.
    """

    trees: dict
    failures: dict
    num_cached: int


def parse_captions(  # noqa: PLR0913  (all but the first two by name)
    captions,
    parser="embedded",
    *,
    cache=None,
    processes=None,
    corenlp_url="",
    progress=lambda count: None,
) -> Parses:
    """Parses each distinct caption once, in parallel.

    `parser` is a name in `PARSERS`. Each result is immediately appended to the
    file `cache`, so that an interrupted run can resume. `processes` defaults to
    the number of cores. `progress` is called with the number of cached
    captions, then with 1 after each parsed caption.
    """
    distinct = list(dict.fromkeys(captions))
    parsed = _read_cache(cache, parser) if cache else {}
    todo = [caption for caption in distinct if caption not in parsed]
    num_cached = len(distinct) - len(todo)
    progress(num_cached)
    with open(cache or os.devnull, "a", 1, "utf-8") as file:  # By line.
        for row in _parsed(todo, (parser, corenlp_url), processes):
            file.write(_line(parser=parser, **row))
            parsed[row["caption"]] = row["tree"], row["failure"]
            progress(1)
    rows = [(caption, *parsed[caption]) for caption in distinct]
    trees = {caption: tree for caption, tree, _ in rows}
    failures = {caption: reason for caption, _, reason in rows if reason}
    return Parses(trees, failures, num_cached)


def _parsed(captions, name, processes):
    if not captions:
        return
    opened_parser = open_parser(*name)  # Raises errors before a pool starts.
    processes = min(processes or usable_cores(), -(-len(captions) // CHUNK))
    if processes == 1:
        yield from (_parse(caption, opened_parser) for caption in captions)
        return
    # A fork of a process that runs TensorFlow may hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, _start, name)
    try:
        yield from pool.map(_parse, captions, chunksize=CHUNK)
    except BrokenProcessPool as error:
        raise InputError(
            "processes",
            "fit into the memory",
            f"processes={processes}, of which one was killed",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


_PARSER = []


def _start(name, corenlp_url):
    _PARSER.append(open_parser(name, corenlp_url))


def _parse(caption, parser=None):
    parser = parser or _PARSER[0]
    try:
        tree, failure = parser(caption), ""
        read_tree(tree)
    except Exception as error:  # A parser may raise any type of error.
        tree = right_branching_text(caption)
        failure = " ".join(str(error).split())[:300] or type(error).__name__
    return {"caption": caption, "tree": tree, "failure": failure}


# Each line of the cache is a JSON object with the parser's name, a caption, its
# tree in brackets, and the error if the parser failed.


def _read_cache(path, parser):
    if not os.path.exists(path):
        return {}
    lines, ends_well = CheckedFile(path).lines()
    if not ends_well:
        write_text(path, "".join(f"{line}\n" for line in lines[:-1]))
    names = ("parser", "caption", "tree", "failure")
    return {
        row["caption"]: (row["tree"], row["failure"])
        for _, row in CheckedFile(path).json_rows(names, strings=True)
        if row["parser"] == parser
    }


def _line(**row):
    return json.dumps(row, ensure_ascii=False) + "\n"


def write_parses(path, captions, parses):
    """Writes the trees of (id, caption) pairs to a JSON lines file."""
    lines = []
    for name, caption in captions:
        failed = {"fallback": True} if caption in parses.failures else {}
        tree = parses.trees[caption]
        lines.append(_line(id=name, caption=caption, tree=tree, **failed))
    write_text(path, "".join(lines))
