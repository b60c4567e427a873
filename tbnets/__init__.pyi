"""The public names, each with the module that defines it."""

# A network and its parts.
from .models.embedding_network import EmbeddingNetwork as EmbeddingNetwork
from .models.similarity_network import SimilarityNetwork as SimilarityNetwork
from .models.hm_lstm import HMLSTM as HMLSTM
from .models.cca import CCA as CCA
from .models.two_branch import TwoBranchModel as TwoBranchModel
from .models.keras_file import load_model as load_model
from .layers.branch import Branch as Branch
from .layers.branch import (
    CanonicalProjection as CanonicalProjection,
)
from .layers.feature_transform import FeatureTransform as FeatureTransform
from .features.image_encoders import ApplicationEncoder as ApplicationEncoder
from .features.image_encoders import SmallConvNet as SmallConvNet
from .layers.text_encoders import TextEncoder as TextEncoder
from .layers.text_encoders import MeanOfWords as MeanOfWords
from .layers.text_encoders import FeaturesAndMean as FeaturesAndMean
from .layers.text_encoders import RecurrentEncoder as RecurrentEncoder
from .layers.sentence_encoder import SentenceEncoder as SentenceEncoder
from .layers.tree_lstm import TreeEncoder as TreeEncoder
from .layers.tree_lstm import TreeLSTM as TreeLSTM
from .layers.caption_vectors import TfidfVectors as TfidfVectors
from .layers.caption_vectors import MeanVectors as MeanVectors
from .layers.caption_vectors import FisherVectors as FisherVectors
from .features.caption_encoder import CaptionReader as CaptionReader
from .features.hub import from_preset as from_preset
from .layers.branch import PairHead as PairHead
from .layers.branch import SeededDropout as SeededDropout

# Losses and miners.
from .losses.presets import PRESETS as PRESETS
from .losses.triplet import TripletLoss as TripletLoss
from .losses.infonce import InfoNCELoss as InfoNCELoss
from .losses.logistic import logistic_loss as logistic_loss
from .losses.positives import positive_masks as positive_masks
from .losses.miners import hardest_negatives as hardest_negatives
from .losses.logistic import sample_pairs as sample_pairs
from .data.candidate_mining import CandidateMining as CandidateMining

# Optimizers and callbacks.
from .training.optimizers import FusedAdam as FusedAdam
from .training.optimizers import FusedSGD as FusedSGD
from .training.retrieval_metrics import RetrievalMetrics as RetrievalMetrics

# Data.
from .data.captions import CaptionedImages as CaptionedImages
from .data.captions import read_captions as read_captions
from .data.phrases import PhraseRegions as PhraseRegions
from .data.phrases import read_phrases as read_phrases
from .data.batches import Examples as Examples
from .data.batches import EpochBatches as EpochBatches
from .data.images import decode_images as decode_images
from .data.store.reader import open_features as open_features
from .serving.search_index import open_index as open_index
from .serving.index_writer import IndexWriter as IndexWriter
from .text.vocabulary import Tokenizer as Tokenizer
from .text.vocabulary import Vocabulary as Vocabulary
from .text.vocabulary import split_words as split_words

# Trees.
from .text.trees import Tree as Tree
from .text.trees import read_tree as read_tree
from .text.packed_trees import TreeRows as TreeRows
from .text.packed_trees import pack_trees as pack_trees
from .text.packed_trees import tree_arrays as tree_arrays

# Text features and word vectors.
from .features.tfidf import TfidfFeatures as TfidfFeatures
from .features.caption_encoder import MeanFeatures as MeanFeatures
from .features.fisher import FisherFeatures as FisherFeatures
from .features.fisher import HybridMixture as HybridMixture
from .text.word_vectors import WordVectors as WordVectors
from .text.word_vectors import read_word_vectors as read_word_vectors

# Measures.
from .evaluation.retrieval import bootstrap_interval as bootstrap_interval
from .evaluation.retrieval import evaluate_retrieval as evaluate_retrieval
from .evaluation.retrieval import retrieval_ranks as retrieval_ranks
from .evaluation.grounding import (
    evaluate_localization as evaluate_localization,
)
from .evaluation.tables import format_table as format_table

# SavedModels.
from .serving.export import export_saved_model as export_saved_model
from .serving.served import load_saved_model as load_saved_model
from .serving import zoo as zoo
from .extras.server.client import Client as Client

__version__: str
