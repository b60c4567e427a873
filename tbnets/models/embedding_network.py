"""The embedding network, trained with a ranking loss."""

from typing import Any

import keras
import tensorflow as tf

from tbnets.checks import Batch, Tensors, checked_dict, checked_number
from tbnets.errors import check_kind
from tbnets.losses.ranking import TERMS, LossOutput, RankingLoss
from tbnets.losses.triplet import TripletLoss
from tbnets.models.two_branch import IDS, INPUTS, TwoBranchModel, ids_of

WITHIN_VIEWS = TERMS[2:]


@keras.saving.register_keras_serializable(package="tbnets")
class EmbeddingNetwork(TwoBranchModel):
    """Embeds images and texts so that matching pairs are close.

    ::

        images -> [image_encoder ->] image_branch -> unit vectors
        texts  -> [text_encoder  ->] text_branch  -> unit vectors

    A batch is a dict. `images` contains features `[n, feature_dim]`, or pixels
    `[n, height, width, 3]` in [0, 255]. `captions` contains features `[m,
    dim]`, int word ids `[m, words]`, where 0 is padding, or strings `[m]`.
    Training also requires integer ids, which define the matches: `image_ids`
    `[n]` and `caption_image_ids` `[m]`. `text_ids` `[m]`, one id per distinct
    text, is optional. All sizes except feature sizes may vary between
    batches.

    Args:
        image_branch: any layer, such as a `Branch`. The network normalises its
            outputs to unit length. None means `Branch()`.
        text_branch: as `image_branch`, with the same output size.
        image_encoder: any layer that turns pixels into features; None if the
            images are features.
        text_encoder: any layer that turns word ids or strings into features;
            None if the branch reads the captions.

    Example:
        network = tbnets.EmbeddingNetwork(
            tbnets.Branch((2048, 512)), tbnets.Branch((1024, 512)),
            text_encoder=tbnets.RecurrentEncoder(vocabulary.size))
        network.compile("adam", tbnets.TripletLoss())
        network.fit(batches)

    Source: Wang et al. 2016, Fig. 1; Wang et al. 2018, Sec. 3.2.
    """

    loss_kind: type = RankingLoss

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer,
        loss: RankingLoss | None = None,
        gradient_clip_norm: float | None = None,
        structure_steps: float = 0,
        structure_end: float | None = None,
        mining: Any = None,
        **kwargs: Any,
    ) -> None:
        """Prepares the network for `fit`.

        Args:
            optimizer: a Keras optimizer or its name.
            loss: a `RankingLoss`; None means `TripletLoss()`.
            gradient_clip_norm: maximum global norm of the gradient in a step;
                None disables clipping. Vilalta et al. 2017 use 2.
            structure_steps: number of initial steps that omit the within-view
                terms and report them as 0. For phrase localization, Wang 2018
                omits them in the first 8 of 10 epochs.
            structure_end: step from which the within-view terms are omitted
                again, or None. Wang 2016 omits them in fine-tuning with hard
                negatives.
            mining: object, such as a `CandidateMining`, that computes the loss
                of batches with additional entries, or None.
            **kwargs: other arguments of `TwoBranchModel.compile`.
        """
        if loss is None and self.loss_kind is RankingLoss:
            loss = TripletLoss()
        check_kind("loss", loss, self.loss_kind)
        super().compile(optimizer, loss, gradient_clip_norm, **kwargs)
        checked_number("structure_steps", structure_steps, 0)
        if structure_end is not None:
            checked_number("structure_end", structure_end, 0)
        self.structure_steps, self.structure_end = (
            structure_steps,
            structure_end,
        )
        self.mining = mining

    @staticmethod
    def reported_names() -> list[str]:
        """Returns the names of the values that `report` may return."""
        return [f"{t}_{what}" for t in TERMS for what in ("loss", "active")]

    def call(self, inputs: Batch, training: bool = False) -> Tensors:
        """Returns a dict with `image_embeddings` and `text_embeddings`."""
        images, texts = self.embed(inputs, training)
        return {"image_embeddings": images, "text_embeddings": texts}

    def batch_loss(self, batch: Batch, training: bool = False) -> LossOutput:
        """Returns the `LossOutput` of the whole batch across replicas."""
        batch = checked_dict("batch", batch, INPUTS + IDS)
        if self.mining is not None:
            return self.mining.ranking_output(self, batch, training)
        outputs = self({key: batch[key] for key in INPUTS}, training=training)
        sides = (outputs[f"{side}_embeddings"] for side in ("image", "text"))
        return self.loss(*sides, *ids_of(batch), **self.loss_options())

    def loss_options(self) -> dict[str, Any]:
        """Returns the keyword arguments for calls of the loss."""
        return {"idle": self.idle_terms(), "largest": self.largest_batch}

    def idle_terms(self) -> tuple[tuple[str, ...], Any]:
        """Returns (scheduled terms, whether this step omits these terms)."""
        if not self.structure_steps and self.structure_end is None:
            return (), False
        step = tf.convert_to_tensor(self.optimizer.iterations)
        step = tf.cast(step, tf.float32)
        off = step < self.structure_steps
        if self.structure_end is not None:
            off |= step >= self.structure_end
        return WITHIN_VIEWS, off

    def report(self, output: LossOutput) -> Tensors:
        """Returns a dict with the losses and active fractions of the terms."""
        scalars = {}
        for term, value in output.terms.items():
            scalars[f"{term}_loss"] = value
            scalars[f"{term}_active"] = output.active_fraction[term]
        return scalars
