"""Captions -> trees -> files: parsed once, in parallel, kept by text.

The cache has a JSON object a line: the parser's name, a caption, its tree in
brackets, and why it is right-branching where the parser gave none. The file of
trees that comes out is described in `tree_files`.
"""

import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import NamedTuple

from tbnets.checked_files import CheckedFile
from tbnets.cores import usable_cores
from tbnets.errors import InputError
from tbnets.files import write_text
from tbnets.text.parsers import RightBranchingParser, open_parser
from tbnets.text.trees import read_tree

CHUNK = 64


class Parses(NamedTuple):
    """What parsing gave.

    Attributes:
        trees: caption -> brackets.
        failures: caption -> why it has a right-branching tree.
        num_cached: captions that were known.
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
    progress=None,
) -> Parses:
    """Parses each distinct caption once, in parallel.

    Args:
        captions: strings.
        parser: name of one of `parsers.PARSERS`.
        cache: file of what is parsed already; grows as parsing goes on, so
            that what is stopped at any moment goes on where it was. None
            keeps nothing.
        processes: how many parse at once; None for one a core.
        corenlp_url: server of the `corenlp` parser.
        progress: function of the number of captions just done, or None.

    Raises:
        ValueError, ModuleNotFoundError, ConnectionError: there is no such
            parser, or not what it needs.
        ProblemError: a line of the cache is none.
        InputError: a process was killed; what is in the cache stays.
    """
    progress = progress or (lambda count: None)
    wanted = list(dict.fromkeys(captions))
    known = _read_cache(cache, parser) if cache else {}
    todo = [caption for caption in wanted if caption not in known]
    num_cached = len(wanted) - len(todo)
    progress(num_cached)
    line_by_line = 1
    with open(cache or os.devnull, "a", line_by_line, "utf-8") as file:
        for row in _parsed(todo, (parser, corenlp_url), processes):
            file.write(_line(parser=parser, **row))
            known[row["caption"]] = row["tree"], row["failure"]
            progress(1)
    found = [(caption, *known[caption]) for caption in wanted]
    trees = {caption: tree for caption, tree, _ in found}
    failures = {caption: reason for caption, _, reason in found if reason}
    return Parses(trees, failures, num_cached)


def _parsed(captions, name, processes):
    """Yields a dict of each caption: `caption`, `tree`, `failure`: why or "".

    Args:
        captions: strings.
        name: what `open_parser` is given.
        processes: how many parse at once; None for one a core.
    """
    if not captions:
        return
    opened = open_parser(*name)  # Its error comes before a pool.
    processes = min(processes or usable_cores(), -(-len(captions) // CHUNK))
    if processes == 1:
        yield from (_parse(caption, opened) for caption in captions)
        return
    # A fork of a process that runs TensorFlow may hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, _start, name)
    try:
        yield from pool.map(_parse, captions, chunksize=CHUNK)
    except BrokenProcessPool as error:
        raise InputError(
            "`processes` must have the memory that they need. Received: "
            f"processes={processes}, one of which was killed. Parse again with "
            "fewer: with a cache it goes on where it was."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


_PARSER = []


def _start(name, corenlp_url):
    """Opens the parser of a process."""
    _PARSER.append(open_parser(name, corenlp_url))


def _parse(caption, parser=None):
    """Returns a caption, its brackets, why they are right-branching or "".

    Args:
        caption: string.
        parser: None for that of the process.
    """
    parser = parser or _PARSER[0]
    try:
        tree, failure = parser.parse(caption), ""
        read_tree(tree)
    except Exception as error:  # Whatever a parser raises: one caption's loss.
        tree = RightBranchingParser().parse(caption)
        failure = " ".join(str(error).split())[:300] or type(error).__name__
    return {"caption": caption, "tree": tree, "failure": failure}


def _read_cache(path, parser):
    """Returns caption -> (brackets, reason) of a parser.

    The last line may be half of one, where a process was killed; then it is
    cut off, so that the next line begins anew.
    """
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
    """Writes a file of trees, complete or not at all.

    Args:
        path: the file.
        captions: list of (id, caption).
        parses: `Parses` that has them all.
    """
    lines = []
    for name, caption in captions:
        failed = {"fallback": True} if caption in parses.failures else {}
        tree = parses.trees[caption]
        lines.append(_line(id=name, caption=caption, tree=tree, **failed))
    write_text(path, "".join(lines))
