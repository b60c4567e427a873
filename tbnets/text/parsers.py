"""Parsers: a caption -> its constituency tree in brackets.

The `embedded` one needs `pip install "tbnets[parse]"` and downloads nothing:
TextBlob's tagger (its own word lists), then a cascade of NLTK's RegexpParser.
`corenlp` asks a server; `right_branching` knows no syntax at all.
"""

import re
import urllib.request

from tbnets.errors import (
    InputError,
    UnreachableError,
    check_choice,
    import_extra,
)
from tbnets.text.trees import MOST_LETTERS, MOST_WORDS, escaped, right_branching

DEFAULT_URL = "http://localhost:9000"

# Words, clitics and punctuation, as the Penn Treebank cuts them.
_CLITICS = r"['\u2019](?:s|ll|re|ve|d|m)\b"
_TOKEN = re.compile(
    rf"n['\u2019]t\b|{_CLITICS}|[^\W_]+?(?=n['\u2019]t\b)|[^\W_]+(?={_CLITICS})"
    r"|[^\W_]+(?:[-.'\u2019/][^\W_]+)*|[^\w\s]|_",
    re.IGNORECASE,
)

# The first rules are read first. OF, PART (a participle or infinitive and what
# follows it) and OFPP are renamed below, where they have done their work.
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
    """Returns the words, clitics and punctuation marks of a caption.

    Example:
        split_tokens("A man's dog doesn't run.")
        # ["A", "man", "'s", "dog", "does", "n't", "run", "."]
    """
    return _TOKEN.findall(caption)


class EmbeddedParser:
    """Tags words, and chunks tags by a grammar for captions."""

    def __init__(self):
        taggers = import_extra("parse", "textblob.en.taggers")
        nltk = import_extra("parse", "nltk")
        self._tagger = taggers.PatternTagger()
        self._chunker = nltk.RegexpParser(GRAMMAR, root_label="S", loop=2)
        self._tree = nltk.Tree

    def parse(self, caption) -> str:
        """Returns the tree of a caption in brackets.

        Raises:
            ValueError: there is nothing to parse, or the tagger lost words.
        """
        tokens = split_tokens(caption)
        if not any(token[0].isalnum() for token in tokens):
            raise InputError("there are no words in it")
        tree = self._chunker.parse(self._tag(tokens))
        return self._written(self._rooted(tree))

    def _tag(self, tokens):
        """Returns (word, tag) pairs; `of` has a tag of its own."""
        # The first word has no capital of its own; "/" parts the tagger's
        # words from their tags.
        plain = [token.replace("/", "-") for token in tokens]
        plain[0] = plain[0].lower()
        tags = [tag for _, tag in self._tagger.tag(" ".join(plain), False)]
        if len(tags) != len(tokens):
            raise InputError("the tagger cut it into other words")
        return [
            (token, "OF" if token.lower() == "of" else tag)
            for token, tag in zip(tokens, tags)
        ]

    def _rooted(self, tree):
        """Returns a caption that is one phrase as that phrase."""
        inner = [
            place
            for place, child in enumerate(tree)
            if isinstance(child, self._tree) or child[1] not in _PUNCTUATION
        ]
        phrase = tree[inner[0]] if len(inner) == 1 else None
        if not isinstance(phrase, self._tree):
            return tree
        children = [*tree[: inner[0]], *phrase, *tree[inner[0] + 1 :]]
        return self._tree(phrase.label(), children)

    def _written(self, tree):
        """Returns an NLTK tree over (word, tag) in brackets."""
        if isinstance(tree, self._tree):
            label, inside = tree.label(), " ".join(map(self._written, tree))
        else:
            inside, label = map(escaped, tree)
        return f"({_RENAMED.get(label, label)} {inside})"


class CoreNLPParser:
    """Asks a CoreNLP server through NLTK's client.

    Args:
        url: of the server.

    Raises:
        ConnectionError: no server answers there.
    """

    def __init__(self, url=DEFAULT_URL):
        corenlp = import_extra("parse", "nltk.parse.corenlp")
        try:
            urllib.request.urlopen(url, timeout=10).close()
        except (OSError, ValueError) as error:
            raise UnreachableError(
                "`corenlp_url` must be the address of a running CoreNLP "
                f"server. Received: corenlp_url={url}, which does not "
                f"answer: {getattr(error, 'reason', error)}. Start one by: "
                "java -mx4g -cp '*' "
                "edu.stanford.nlp.pipeline.StanfordCoreNLPServer -port 9000"
            ) from error
        self._parser = corenlp.CoreNLPParser(url)

    def parse(self, caption) -> str:
        """Returns the tree of a caption in brackets."""
        return _joined(self._parser.parse_text(caption))


class RightBranchingParser:
    """Knows no syntax: each word joins all that follow it.

    What captions get that a parser gives no tree for, and what a parser is to
    be compared with.
    """

    def parse(self, caption) -> str:
        """Returns the right-branching tree of a caption in brackets.

        Words beyond 4096 are left out, and letters of a word beyond 200; a
        caption without a word is one: `-`.
        """
        words = [word[:MOST_LETTERS] for word in split_tokens(caption)] or ["-"]
        return right_branching(words[:MOST_WORDS]).bracketed()


PARSERS = {
    "embedded": EmbeddedParser,
    "corenlp": CoreNLPParser,
    "right_branching": RightBranchingParser,
}


def open_parser(name, corenlp_url=DEFAULT_URL):
    """Returns a parser: something with `parse(caption)` -> brackets.

    Args:
        name: one of `PARSERS`.
        corenlp_url: the server of `corenlp`.

    Raises:
        ValueError: there is no such parser.
        ModuleNotFoundError, ConnectionError: what it needs is not there.
    """
    check_choice("parser", name, PARSERS)
    if name == "corenlp":
        return CoreNLPParser(corenlp_url)
    return PARSERS[name]()


def _joined(trees):
    """Returns one tree in brackets for those of the sentences."""
    texts = [" ".join(str(tree).split()) for tree in trees]
    if not texts:
        raise InputError("the parser found no sentence")
    return texts[0] if len(texts) == 1 else f"(S {' '.join(texts)})"
