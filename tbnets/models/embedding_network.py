"""The embedding network: two branches into one space, trained by ranking."""

import keras
import tensorflow as tf

from tbnets.losses.triplet import TERMS
from tbnets.losses.triplet import positive_masks

KERAS_2 = keras.__version__.startswith("2.")


def current_learning_rate(optimizer):
    """Returns the learning rate of `optimizer`, a float32 scalar.

    Under a schedule it is the rate of the coming step; only the optimizers
    of Keras 2 (not those of tensorflow-addons, which hand out the schedule
    itself) give the rate of the last step taken.
    """
    rate = optimizer.learning_rate
    if callable(rate) and not isinstance(rate, tf.Variable):
        rate = rate(optimizer.iterations)
    return tf.cast(tf.convert_to_tensor(rate), tf.float32)


@keras.saving.register_keras_serializable(package="tbnets")
class EmbeddingNetwork(keras.Model):
    """Embeds images and texts so that what belongs together is close.

    ::

        images -> [image_encoder ->] image_branch -> unit vectors
        texts  -> [text_encoder  ->] text_branch  -> unit vectors

    A batch is a dict with `images` (`[n, feature_dim]` features or `[n,
    height, width, 3]` pixels in [0, 255]), `captions` (int `[m, words]` word
    ids, 0 is padding, or `[m, feature_dim]` features), and, in training, the
    integers `image_ids` `[n]` and `caption_image_ids` `[m]` that say which
    belong together (optionally `text_ids` `[m]`, equal for equal texts). `n`
    and `m` need not have a fixed ratio, and any of these may vary from batch
    to batch.

    Args:
        image_branch: `Branch` of the images.
        text_branch: `Branch` of the texts, with the same last size.
        image_encoder: layer that turns pixels into features, or None.
        text_encoder: layer that turns word ids into features, or None.

    Example:
        network = EmbeddingNetwork(
            Branch((2048, 512)), Branch((1024, 512)),
            text_encoder=RecurrentEncoder(len(vocabulary)))
        network.compile("adam", TripletLoss())
        network.fit(batches)

    Source: Wang et al. 2016, Fig. 1; Wang et al. 2018, Sec. 3.2.
    """

    def __init__(
        self,
        image_branch,
        text_branch,
        image_encoder=None,
        text_encoder=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.image_branch = image_branch
        self.text_branch = text_branch
        self.image_encoder = image_encoder
        self.text_encoder = text_encoder
        self.triplet_loss = None
        self.gradient_clip_norm = None
        self.hardness_steps = 1
        names = ["total_loss", "gradient_norm", "learning_rate"]
        for term in TERMS:
            names += [f"{term}_loss", f"{term}_active"]
        self.trackers = {name: keras.metrics.Mean(name) for name in names}

    @property
    def embedding_dim(self):
        """Size of the shared space."""
        return self.image_branch.output_dim

    def compile(
        self,
        optimizer,
        triplet_loss,
        gradient_clip_norm=None,
        hardness_steps=1,
        **kwargs,
    ):
        """Prepares the network for `fit`.

        Args:
            optimizer: a Keras optimizer or its name.
            triplet_loss: a `losses.TripletLoss`.
            gradient_clip_norm: largest global norm of a step's gradient;
                None leaves it alone. Vilalta et al. 2017 use 2.
            hardness_steps: steps in which `all_to_hardest` goes from all
                negatives to the hardest.
            **kwargs: as `keras.Model.compile`, for example `jit_compile`.
        """
        kwargs.setdefault("jit_compile", False)
        super().compile(optimizer=optimizer, **kwargs)
        self.triplet_loss = triplet_loss
        self.gradient_clip_norm = gradient_clip_norm
        self.hardness_steps = hardness_steps

    @property
    def metrics(self):
        """The means over an epoch of what `train_step` reports."""
        weights = self.triplet_loss.term_weights if self.triplet_loss else {}
        unused = [term for term in TERMS if not weights.get(term)]
        return [
            tracker
            for name, tracker in self.trackers.items()
            if name.rpartition("_")[0] not in unused
        ]

    def build(self, input_shape):
        """Builds both branches.

        Args:
            input_shape: dict with the shapes of `images` and `captions`;
                the number of images, captions and words may be None.
        """
        shapes = {key: tuple(shape) for key, shape in input_shape.items()}
        for shape, encoder, branch in (
            (shapes["images"], self.image_encoder, self.image_branch),
            (shapes["captions"], self.text_encoder, self.text_branch),
        ):
            if encoder is not None:
                if not encoder.built:
                    encoder.build(shape)
                shape = (None, encoder.output_dim)
            if not branch.built:
                branch.build(shape)
        sizes = (self.image_branch.output_dim, self.text_branch.output_dim)
        if sizes[0] != sizes[1]:
            raise ValueError(
                "`image_branch` and `text_branch` must end in the same size. "
                f"Received: {sizes[0]} for images, {sizes[1]} for texts. "
                "Change the last entry of --image_units or --text_units, or "
                "--rnn_units where the text branch has no layers."
            )
        self.built = True

    def embed_images(self, images, training=False):
        """Returns unit vectors float32 `[n, embedding_dim]` of images."""
        if self.image_encoder is not None:
            images = self.image_encoder(images, training=training)
        return self.image_branch(images, training=training)

    def embed_text(self, captions, training=False):
        """Returns unit vectors float32 `[m, embedding_dim]` of texts."""
        if self.text_encoder is not None:
            captions = self.text_encoder(captions, training=training)
        return self.text_branch(captions, training=training)

    def call(self, inputs, training=False):
        """Returns the dict of `image_embeddings` and `text_embeddings`."""
        return {
            "image_embeddings": self.embed_images(
                inputs["images"], training=training
            ),
            "text_embeddings": self.embed_text(
                inputs["captions"], training=training
            ),
        }

    def batch_loss(self, batch, training=False):
        """Returns the `LossOutput` of one batch."""
        outputs = self(
            {"images": batch["images"], "captions": batch["captions"]},
            training=training,
        )
        masks = positive_masks(
            batch["image_ids"],
            batch["caption_image_ids"],
            batch.get("text_ids"),
        )
        hardness = None
        if self.triplet_loss.negatives == "all_to_hardest":
            step = tf.cast(
                tf.convert_to_tensor(self.optimizer.iterations), tf.float32
            )
            hardness = tf.minimum(step / self.hardness_steps, 1.0)
        return self.triplet_loss(
            outputs["image_embeddings"],
            outputs["text_embeddings"],
            masks,
            hardness,
        )

    def train_step(self, batch):
        """Takes one step down the gradient; returns what it saw."""
        rate = current_learning_rate(self.optimizer)
        with tf.GradientTape() as tape:
            output = self.batch_loss(batch, training=True)
        variables = self.trainable_variables
        gradients = tape.gradient(output.total, variables)
        norm = tf.linalg.global_norm(gradients)
        if self.gradient_clip_norm:
            gradients, _ = tf.clip_by_global_norm(
                gradients, self.gradient_clip_norm, use_norm=norm
            )
        self.optimizer.apply_gradients(zip(gradients, variables))
        if KERAS_2 and hasattr(self.optimizer, "build"):
            rate = current_learning_rate(self.optimizer)
        return self._report(output, gradient_norm=norm, learning_rate=rate)

    def test_step(self, batch):
        """Returns the loss of a batch without learning from it."""
        return self._report(self.batch_loss(batch))

    def _report(self, output, **scalars):
        scalars["total_loss"] = output.total
        for term, value in output.terms.items():
            scalars[f"{term}_loss"] = value
            scalars[f"{term}_active"] = output.active_fraction[term]
        for name, value in scalars.items():
            self.trackers[name].update_state(value)
        return {name: self.trackers[name].result() for name in scalars}

    def get_config(self):
        """Returns the constructor's arguments, layers as their configs."""
        config = super().get_config()
        for name in (
            "image_branch",
            "text_branch",
            "image_encoder",
            "text_encoder",
        ):
            layer = getattr(self, name)
            config[name] = layer and keras.saving.serialize_keras_object(layer)
        return config

    @classmethod
    def from_config(cls, config):
        """Returns a new network of the same construction."""
        config = dict(config)
        for name in (
            "image_branch",
            "text_branch",
            "image_encoder",
            "text_encoder",
        ):
            if config.get(name):
                config[name] = keras.saving.deserialize_keras_object(
                    config[name]
                )
        return cls(**config)
