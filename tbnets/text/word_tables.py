"""Word vectors of others as the first table of a network's words.

table = embedding_table(centred(vectors, 0.05), vocabulary)
print(coverage_line(coverage(vectors, counts)))
"""

import dataclasses

import numpy as np

from tbnets.errors import InputError
from tbnets.rounding import per_cent
from tbnets.seeds import generator_of
from tbnets.text.vocabulary import PADDING_ID


def coverage(vectors, counts):
    """Returns how much of some texts has vectors.

    Args:
        vectors: `WordVectors`.
        counts: word -> how often it occurs, as `count_words` returns.

    Returns:
        dict: `words`, how many distinct words there are; `known_words`, how
        many of them have a vector; `token_share`, the fraction in [0, 1] of
        all occurrences that have one; `most_frequent_missing`, up to five
        words without, the most frequent first.
    """
    known = set(vectors.words)
    missing = [word for word in counts if word not in known]
    missing.sort(key=lambda word: (-counts[word], word))
    tokens = sum(counts.values())
    covered = tokens - sum(counts[word] for word in missing)
    return {
        "words": len(counts),
        "known_words": len(counts) - len(missing),
        "token_share": covered / max(tokens, 1),
        "most_frequent_missing": missing[:5],
    }


def coverage_line(report):
    """Returns a `coverage` in words."""
    missing = ", ".join(report["most_frequent_missing"])
    return (
        f"{report['known_words']} of {report['words']} words have vectors, "
        f"{per_cent(report['token_share'])} % of all their occurrences"
        f"{missing and f'; without: {missing}'}"
    )


def centred(vectors, scale):
    """Returns vectors as a network that is trained can begin with them.

    Vectors of others share a large mean, and are long. The mean of a
    caption's words is then nearly the same for all captions, and steps that
    suit the other weights hardly move it: such a network did not learn.

    Args:
        vectors: `WordVectors`.
        scale: standard deviation of all numbers afterwards, above 0.

    Returns:
        `WordVectors`, each dimension with mean 0 over the words.

    Source: the mean is what Mu and Viswanath 2018, "All-but-the-top", remove
    first; the scale is relative to what Keras draws for a new table, numbers
    of a deviation of 0.03.
    """
    rows = vectors.vectors - vectors.vectors.mean(axis=0)
    deviation = rows.std()
    if deviation > 0:
        rows *= scale / deviation
    return dataclasses.replace(vectors, vectors=rows)


def with_new_dims(table, count, seed=0):
    """Returns a table of words, each with some new numbers behind its own.

    Args:
        table: float32 `[words, dim]`; row 0 is padding.
        count: new numbers a word, drawn evenly from -0.05 to 0.05 as Keras
            draws them; 0 for padding.
        seed: integer, of the random numbers.

    Returns:
        float32 `[words, dim + count]`.
    """
    generator = generator_of(seed, "new_dims")
    new = generator.uniform(-0.05, 0.05, (len(table), count))
    new[PADDING_ID] = 0
    return np.concatenate([table, new.astype(np.float32)], axis=1)


def embedding_table(vectors, vocabulary, seed=0):
    """Returns the vectors of a vocabulary's words, as a network's first table.

    A word without a vector, such as the unknown word, gets normal numbers
    with the mean and deviation of the known vectors in each dimension.

    Args:
        vectors: `WordVectors`, at least one.
        vocabulary: a `Vocabulary`.
        seed: integer, of the random numbers.

    Returns:
        float32 `[vocabulary.size, dim]`; the row of padding is 0.

    Raises:
        ValueError: no word has a vector.
    """
    rows = vectors.rows(vocabulary.words)
    known = rows >= 0
    if not known.any():
        raise InputError(
            "`vectors` must have at least one word of the vocabulary. Received:"
            f" {vectors.path or 'vectors'} with none of {vocabulary.size}. "
            "Name vectors of the captions' language."
        )
    table = np.zeros((vocabulary.size, vectors.dim), np.float32)
    table[known] = vectors.vectors[rows[known]]
    mean, deviation = table[known].mean(axis=0), table[known].std(axis=0)
    shape = (np.count_nonzero(~known), vectors.dim)
    draws = generator_of(seed, "missing_vectors")
    noise = draws.standard_normal(shape, np.float32)
    table[~known] = mean + deviation * noise
    table[PADDING_ID] = 0
    return table
