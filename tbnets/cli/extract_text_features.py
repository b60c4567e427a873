r"""Compute features of captions, such as tf-idf, and store them.

For example, tf-idf of the 3000 most frequent lemmas, as in Wang et al. 2016:

  tbnets extract_text_features --features=tfidf --num_terms=3000 \
      --captions=data/flickr8k/dataset_flickr8k.json \
      --output=features/flickr8k_tfidf

Or Fisher vectors of word vectors (word2vec or GloVe):

  tbnets extract_text_features --features=fisher \
      --word_vectors=data/GoogleNews-vectors-negative300.bin \
      --captions=data/flickr8k/dataset_flickr8k.json \
      --output=features/flickr8k_fisher

Then train with --text_encoder=features --text_features=features/flickr8k_tfidf.
The store contains the fitted encoder, so the exported model takes raw captions.
If the command is interrupted, run it again: it resumes.

See docs/text_features.md.
"""

import dataclasses

from tbnets.cli.data_flags import CaptionFlags
from tbnets.tasks.recipes import text_features
from tbnets.tasks.recipes.text_features import texts_by_split
from tbnets.tasks.settings.flag import REQUIRED, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(text_features.TextFeatures, CaptionFlags):
    """Flags for the features, the captions and the store."""

    output: str = flag(REQUIRED, "Folder of the feature store to write.")
    phrases: str = flag(
        "",
        "Phrases, as for train.py --task=localization, to encode instead of "
        "the captions.",
    )
    train_split: str = flag("train", "Split on which the features are fitted.")


def main(options):
    """Extracts the features that the flags describe."""
    text_features.check_text_features(options)
    data = options.data(
        train_split=options.train_split, phrases=options.phrases
    )
    texts = texts_by_split(data, options.names())
    text_features.make_text_features(options, texts, options.output)
    line = "Next, train with --text_encoder=features --text_features="
    print(f"{line}{options.output}")
