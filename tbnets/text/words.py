"""Raw captions -> words, inside the graph, and how often each occurs.

A caption takes the same path everywhere: what `split_words` makes of the
training captions is counted for the vocabulary, and the exported model's
`Tokenizer` splits by it. There is no second tokeniser on the host that could
come to disagree with the one being served.

The one op of TF Text in use is in TF Text 2.12.1, the version in TensorFlow
Serving up to 2.19.1.
"""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from tbnets.annotations import Strings
from tbnets.checked_files import shown
from tbnets.errors import InputError, InputTypeError

_SPLIT_BATCH = 8192

_APOSTROPHES = "[\u2018\u2019\u201b\u2032\u02bc\u00b4`]"
_CLITIC = r"'(s|ll|re|ve|d|m)([^\pL\pM\pN]|$)", r" \1\2"
_INNER_APOSTROPHE = r"([\pL\pM\pN])'([\pL\pM\pN])", r"\1\2"
# RE2 patterns and what they become, in this order. A word boundary is spelt out
# because RE2's \b knows ASCII letters only. Of a chain of clitics or of inner
# apostrophes, each time every other one is replaced.
_REWRITES = (
    (r"(\pL) n't([^\pL\pM\pN]|$)", r"\1nt\2"),
    *(_CLITIC, _CLITIC, _INNER_APOSTROPHE, _INNER_APOSTROPHE),
    (r"[^\pL\pM\pN]+", " "),
    (r"(\p{Han})", r" \1 "),
)


# No branch depends on a tensor, and to convert it would take half a second.
@tf.autograph.experimental.do_not_convert
def split_words(captions: Strings) -> tf.RaggedTensor:
    """Splits captions into normalised words.

    Works eagerly, in a `tf.function`, in `Dataset.map` and in a SavedModel.

    - Unicode is normalised (NFKC) and case is folded; bytes that are not
      UTF-8 count as punctuation.
    - A word is a run of letters, marks and digits; everything else separates
      words and is dropped: `T-shirt!` is `t`, `shirt`.
    - An apostrophe never stays. Clitics are words of their own, so `man's`
      and the `man 's` of Penn Treebank text are both `man`, `s`, and `I'd've`
      and `I 'd 've` are `i`, `d`, `ve`; inside any
      other word it is taken out, so `don't` and `do n't` are both `dont`, and
      `o'clock` is `oclock`. (Karpathy's tokens follow the same custom.)
    - A Han character is a word of its own: Chinese writes no spaces.

    Args:
        captions: string `[num_captions]`, UTF-8.

    Returns:
        A `tf.RaggedTensor` of strings, `[num_captions, (words)]`; a caption
        without a letter or digit has no words.

    Raises:
        TypeError: captions are no strings.
        ValueError: they are not in a row.

    Example:
        tbnets.split_words(["A man's T-shirt!"])  # [[a, man, s, t, shirt]]
    """
    text = _as_strings(captions)
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
    text = tf.strings.regex_replace(text, _APOSTROPHES, "'")
    text = tf_text.case_fold_utf8(text)  # Its mapping includes NFKC.
    for pattern, rewrite in _REWRITES:
        text = tf.strings.regex_replace(text, pattern, rewrite)
    # Letters, marks, digits and spaces are left. TF Text's tokeniser splits
    # them alike, and checks the offsets that it found by 170 more ops.
    return tf.strings.split(text)


def _as_strings(captions):
    """Returns captions as a tensor; refuses what is no row of strings."""
    expected = "`captions` must be strings [num_captions]. Received: captions"
    try:
        text = tf.convert_to_tensor(captions, tf.string)
    except (TypeError, ValueError) as error:
        expected += f"={shown(captions)}. Give a list of str."
        raise InputTypeError(expected) from error
    if text.shape.rank in (1, None):
        return text
    expected += f".shape={text.shape}. Put one caption into a list."
    raise InputError(expected)


def split_in_batches(captions):
    """Yields `split_words` of some thousand captions at a time.

    Args:
        captions: sequence of strings.
    """
    for start in range(0, len(captions), _SPLIT_BATCH):
        yield split_words(list(captions[start : start + _SPLIT_BATCH]))


def count_words(captions):
    """Counts the words of captions, a batch at a time.

    Args:
        captions: sequence of strings.

    Returns:
        (counts, lengths): a `collections.Counter` of the words, as they first
        come, and int64 `[num_captions]`, how many words each caption has.
    """
    if isinstance(captions, (str, bytes)) or not hasattr(captions, "__len__"):
        raise InputError(
            "`captions` must be a list of strings. Received: "
            f"captions={shown(captions)}. Put one caption, or all, into a list."
        )
    counts, lengths = collections.Counter(), [np.zeros(0, np.int64)]
    for words in split_in_batches(captions):
        counts.update(words.flat_values.numpy().tolist())
        lengths.append(words.row_lengths().numpy())
    counts = {word.decode("utf-8"): count for word, count in counts.items()}
    return collections.Counter(counts), np.concatenate(lengths)
