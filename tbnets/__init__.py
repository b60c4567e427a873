"""Two-branch networks for image-text matching in Keras.

What a library user needs is found right here, as `tbnets.EmbeddingNetwork`;
`docs/library.md` shows it at work. `docs/reading_order.md` names the rooms of
the package and what each turns into what.

Importing this module is cheap: a name imports its room, and with it
TensorFlow, when it is first asked for. The module only asks TensorFlow to keep
its start-up messages to itself, unless the caller's environment already says
how much it wants to hear.
"""

import importlib
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

__version__ = "0.1.0"

_MODULES = {
    # A network and its parts.
    "EmbeddingNetwork": "tbnets.models.embedding_network",
    "SimilarityNetwork": "tbnets.models.similarity_network",
    "HMLSTM": "tbnets.models.hm_lstm",
    "CCA": "tbnets.models.cca",
    "TwoBranchModel": "tbnets.models.two_branch",
    "load_model": "tbnets.models.keras_file",
    "Branch": "tbnets.layers.branch",
    "CanonicalProjection": "tbnets.layers.canonical_projection",
    "FeatureTransform": "tbnets.layers.feature_transform",
    "ApplicationEncoder": "tbnets.layers.image_encoders",
    "SmallConvNet": "tbnets.layers.image_encoders",
    "TextEncoder": "tbnets.layers.text_encoders",
    "MeanOfWords": "tbnets.layers.text_encoders",
    "RecurrentEncoder": "tbnets.layers.text_encoders",
    "TreeEncoder": "tbnets.layers.tree_encoder",
    "TreeLSTM": "tbnets.layers.tree_lstm",
    "WordTable": "tbnets.layers.word_table",
    "TfidfVectors": "tbnets.layers.fisher_vectors",
    "MeanVectors": "tbnets.layers.fisher_vectors",
    "FisherVectors": "tbnets.layers.fisher_vectors",
    "CaptionReader": "tbnets.layers.fisher_vectors",
    "PairHead": "tbnets.layers.pair_head",
    "SeededDropout": "tbnets.layers.dropout",
    # Losses and miners.
    "PRESETS": "tbnets.losses.presets",
    "TripletLoss": "tbnets.losses.triplet",
    "logistic_loss": "tbnets.losses.logistic",
    "positive_masks": "tbnets.losses.positives",
    "hardest_negatives": "tbnets.losses.miners",
    "sample_pairs": "tbnets.losses.pairs",
    # Optimizers.
    "FusedAdam": "tbnets.training.fused_optimizers",
    "FusedSGD": "tbnets.training.fused_optimizers",
    # Data.
    "CaptionedImages": "tbnets.data.captions",
    "read_captions": "tbnets.data.captions",
    "PhraseRegions": "tbnets.data.phrase_regions",
    "read_phrases": "tbnets.data.phrases",
    "Examples": "tbnets.data.examples",
    "EpochBatches": "tbnets.data.batches",
    "decode_images": "tbnets.images",
    "open_features": "tbnets.store.opening",
    "Tokenizer": "tbnets.text.vocabulary",
    "Vocabulary": "tbnets.text.vocabulary",
    "split_words": "tbnets.text.vocabulary",
    # Trees.
    "Tree": "tbnets.text.trees",
    "read_tree": "tbnets.text.trees",
    "TreeRows": "tbnets.text.packed_trees",
    "pack_trees": "tbnets.text.packed_trees",
    "tree_arrays": "tbnets.text.packed_trees",
    # Text features and word vectors.
    "TfidfFeatures": "tbnets.features.tfidf",
    "MeanFeatures": "tbnets.features.mean_vectors",
    "FisherFeatures": "tbnets.features.fisher",
    "HybridMixture": "tbnets.features.hybrid_mixture",
    "WordVectors": "tbnets.text.word_vectors",
    "read_word_vectors": "tbnets.text.word_vectors",
    # Measures.
    "bootstrap_interval": "tbnets.evaluation.retrieval",
    "evaluate_localization": "tbnets.evaluation.localization",
    "evaluate_retrieval": "tbnets.evaluation.retrieval",
    "retrieval_ranks": "tbnets.evaluation.retrieval",
    "format_table": "tbnets.evaluation.tables",
    # SavedModels.
    "export_saved_model": "tbnets.serving.export",
    "load_saved_model": "tbnets.serving.served",
    "zoo": "tbnets.serving.zoo",  # The module itself.
}

__all__ = [*_MODULES]


def __getattr__(name):
    """Imports a public name when it is first asked for."""
    if name in _MODULES:
        value = importlib.import_module(_MODULES[name])
        if _MODULES[name].rpartition(".")[2] != name:
            value = getattr(value, name)
        globals()[name] = value
        return value
    message = f"module 'tbnets' has no attribute {name!r}."
    if not name.startswith("_"):
        message += _nearest(name)
    raise AttributeError(message, name=name)


def __dir__():
    return sorted({*globals(), *_MODULES})


def _nearest(name):
    """Returns a sentence with the public names most like a wrong one."""
    import difflib

    known = {public.casefold(): public for public in _MODULES}
    found = difflib.get_close_matches(name.casefold(), known)
    meant = " or ".join(f"tbnets.{known[key]}" for key in found)
    return f" Did you mean {meant}?" if meant else " See dir(tbnets)."
