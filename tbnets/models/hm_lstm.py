"""HM-LSTM: sentences, phrases, photos and regions in a shared space."""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from tbnets.checks import (
    Array,
    Batch,
    Integers,
    Tensors,
    checked_dict,
    checked_number,
)
from tbnets.losses.positives import pair_views
from tbnets.losses.ranking import LossOutput, RankingLoss, rank
from tbnets.losses.replicas import gather, span
from tbnets.models.embedding_network import EmbeddingNetwork
from tbnets.models.sides import unit_rows
from tbnets.models.two_branch import IDS, INPUTS, ids_of

_PAIR_FIELDS = "region_images", "region_of", "is_contrast", "weights"
PAIRS = "regions", "phrase_nodes", *_PAIR_FIELDS
"""Batch entries in addition to the inputs of an `EmbeddingNetwork`."""
_TERMS = ("region_to_phrase", "phrase_to_region", "region_mean")
_PAIR_TERMS = dict(zip(("image_to_text", "text_to_image"), _TERMS))
_MEAN_TERMS = {"text_to_image": _TERMS[-1]}


@keras.saving.register_keras_serializable(package="tbnets")
class HMLSTM(EmbeddingNetwork):
    """Embeds captions with their noun phrases, and photos with their regions.

    ::

        photo   -> [image_encoder ->]  image_branch  -> unit vector
        regions -> [region_encoder ->] region_branch -> unit vectors
        tree    -> text_encoder -> node states -> text_branch -> unit vectors

    A batch contains the entries of an `EmbeddingNetwork` batch; `captions` are
    trees (int32 `[m, nodes, 6]`, from `text.packed_trees.TreeRows`). A training
    batch also contains regions, and p pairs of a noun phrase and a region:

    - `regions` `[n, region_dim]`;
    - `region_images` int32 `[n]`: row of each region's photo in `images`;
    - `phrase_nodes` int32 `[p]`: nodes of the phrases, numbered across all
      trees of the batch;
    - `region_of` int32 `[p]`: index of the phrase's region, or of the whole
      photo, in the concatenation of regions and photos;
    - `is_contrast` bool `[p, n + num_images]`: True for the phrase's negatives;
    - `weights` float32 `[p]`: weights of the pairs, 0 before correspondences
      are found.

    Args:
        image_branch: layer applied to the photos.
        text_branch: layer applied to sentences and phrases.
        image_encoder: as in `EmbeddingNetwork`.
        text_encoder: `TreeEncoder`.
        region_branch: layer applied to the regions; None means the encoder and
            branch of the photos.
        region_encoder: layer applied before `region_branch`, or None.

    Example:
        network = tbnets.HMLSTM(
            tbnets.Branch((512,)), tbnets.Branch((512,)),
            text_encoder=tbnets.TreeEncoder(vocabulary.size))
        network.compile("adam", tbnets.TripletLoss(**tbnets.PRESETS["niu2017"]))

    Source: Niu et al. 2017, Sec. 3.2, Fig. 4. Departures: regions may have
    their own branch. Before correspondences are found, only the loss with
    `region_mean_weight` trains this branch.
    """

    build_inputs = (*INPUTS, "regions")

    def __init__(
        self,
        image_branch: keras.layers.Layer,
        text_branch: keras.layers.Layer,
        image_encoder: keras.layers.Layer | None = None,
        text_encoder: keras.layers.Layer | None = None,
        region_branch: keras.layers.Layer | None = None,
        region_encoder: keras.layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        sides = image_branch, text_branch, image_encoder, text_encoder
        super().__init__(*sides, **kwargs)
        self.region_branch = region_branch
        self.region_encoder = region_encoder

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer,
        loss: RankingLoss,
        gradient_clip_norm: float | None = None,
        phrase_weight: float = 1.0,
        region_mean_weight: float = 0.0,
        **kwargs: Any,
    ) -> None:
        """Prepares the network for `fit`.

        Args:
            optimizer: a Keras optimizer or its name.
            loss: the `RankingLoss` between images and sentences, and between
                regions and phrases.
            gradient_clip_norm: as in `EmbeddingNetwork.compile`.
            phrase_weight: weight of the loss between regions and phrases, in
                addition to the weights of the pairs. Paper: 1.
            region_mean_weight: weight of the loss between sentences and the
                mean of a photo's regions. Paper: 0.
            **kwargs: other arguments of `EmbeddingNetwork.compile`.
                `encode_chunk` does not apply to trees.
        """
        super().compile(optimizer, loss, gradient_clip_norm, **kwargs)
        self.phrase_weight = checked_number("phrase_weight", phrase_weight, 0)
        self.region_mean_weight = checked_number(
            "region_mean_weight", region_mean_weight, 0
        )

    @staticmethod
    def reported_names() -> list[str]:
        """Returns the names of the values that `report` may return."""
        return EmbeddingNetwork.reported_names() + [
            f"{term}_{what}" for term in _TERMS for what in ("loss", "active")
        ]

    def build(self, input_shape: Mapping[str, Any]) -> None:
        """Builds the encoders and branches of images, texts and regions.

        Args:
            input_shape: dict of shapes, as in `TwoBranchModel.build`. It must
                contain `regions` if the regions have their own branch.
        """
        super().build(input_shape)
        if self.region_branch is None:
            return
        shapes = checked_dict("inputs", input_shape, self.build_inputs)
        self.input_shapes["regions"] = tuple(shapes["regions"])
        self.build_side("region", "regions")

    def _encoders(self):
        return [self.image_encoder, self.region_encoder]

    @property
    def region_dim(self) -> int:
        """Number of features of a region."""
        key = "images" if self.region_branch is None else "regions"
        return self.input_shapes[key][-1]

    def embed_regions(
        self, regions: Array, training: bool = False
    ) -> tf.Tensor:
        """Returns float32 unit vectors `[n, embedding_dim]` for the regions."""
        if self.region_branch is None:
            return self.embed_images(regions, training=training)
        return self.embed_side("region", "regions", regions, training)

    def embed_nodes(
        self, captions: Array, phrase_nodes: Integers, training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Embeds sentences and some of their phrases.

        Args:
            captions: int32 `[m, nodes, 6]`.
            phrase_nodes: int32 `[p]`, nodes of the phrases, numbered across all
                trees of the batch.
            training: whether dropout is on.

        Returns:
            (sentences, phrases): float32 unit vectors `[m, embedding_dim]` and
            `[p, embedding_dim]`.
        """
        states, trees = self.text_encoder.encode_nodes(captions, training)
        nodes = tf.gather(trees.rows, phrase_nodes)
        rows = tf.concat([trees.roots, nodes], axis=0)
        states, count = tf.gather(states, rows), tf.size(trees.roots)
        embeddings = unit_rows(self.text_branch, states, training)
        return embeddings[:count], embeddings[count:]

    def embed_noun_phrases(
        self, captions: Array
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Embeds a batch's noun phrases, ordered by tree and then by node.

        Args:
            captions: int32 `[m, nodes, 6]`.

        Returns:
            (embeddings, captions, spans): for each phrase, a unit vector,
            float32 `[p, embedding_dim]`; the row of its tree, int32 `[p]`; and
            its range of words, int32 `[p, 2]`.
        """
        states, trees = self.text_encoder.encode_nodes(captions, False)
        is_phrase = tf.gather(trees.is_noun_phrase, trees.rows) > 0
        rows = tf.boolean_mask(trees.rows, is_phrase)
        states = tf.gather(states, rows)
        embeddings = unit_rows(self.text_branch, states, False)
        places = (tf.gather(x, rows) for x in (trees.trees, trees.spans))
        return embeddings, *places

    def call(self, inputs: Batch, training: bool = False) -> Tensors:
        """Returns a dict of embeddings of images, texts and any `regions`."""
        outputs = super().call(inputs, training=training)
        inputs = checked_dict("inputs", inputs, INPUTS)
        if "regions" in inputs:
            outputs["region_embeddings"] = self.embed_regions(
                inputs["regions"], training=training
            )
        return outputs

    def batch_loss(self, batch: Batch, training: bool = False) -> LossOutput:
        """Returns the `LossOutput` of one batch.

        Source: Niu et al. 2017, Eq. 9-10; the loss of whole sentences has
        weight 1.
        """
        batch = checked_dict("batch", batch, INPUTS + IDS + PAIRS)
        images, regions = self._embed_photos_and_regions(batch, training)
        sentences, phrases = self.embed_nodes(
            batch["captions"], batch["phrase_nodes"], training
        )
        ids, options = ids_of(batch), self.loss_options()
        output = self.loss(images, sentences, *ids, **options)
        pairs = (batch[name] for name in _PAIR_FIELDS)
        all_images, regions, phrases, *pairs = gather(
            images, regions, phrases, *pairs
        )
        region_images, region_of, is_contrast, weights = pairs
        all_regions = tf.concat([regions, all_images], axis=0)
        views = pair_views(
            all_regions, phrases, region_of, tf.transpose(is_contrast), weights
        )
        added = rank(self.loss, views)
        output = _joined(output, self.phrase_weight, added, _PAIR_TERMS)
        if self.region_mean_weight:
            mean = _region_mean(regions, region_images, tf.shape(all_images)[0])
            count = tf.shape(images)[0]
            first, _ = span(count)
            own_mean = mean[first : first + count]
            added = self.loss(own_mean, sentences, *ids, **options)
            output = _joined(
                output, self.region_mean_weight, added, _MEAN_TERMS
            )
        return output

    def _embed_photos_and_regions(self, batch, training):
        images, regions = batch["images"], batch["regions"]
        count = tf.shape(images)[0]
        if self.region_branch is not None:
            images = self.embed_images(images, training=training)
            return images, self.embed_regions(regions, training=training)
        stacked = tf.concat([images, regions], axis=0)
        stacked = self.embed_images(stacked, training=training)
        return stacked[:count], stacked[count:]


def _region_mean(regions, region_images, num_images):
    """Returns the normalised mean of each image's regions, or 0 if none."""
    total = tf.math.unsorted_segment_sum(regions, region_images, num_images)
    return tf.math.l2_normalize(total, axis=-1)


def _joined(output, weight, other, names):
    merged = (
        terms | {names[term]: added[term] for term in names if term in added}
        for terms, added in zip(output[1:], other[1:])
    )
    return LossOutput(output.total + weight * other.total, *merged)
