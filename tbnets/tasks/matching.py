"""Defines the task of image-sentence matching, in both directions.

Source: Wang et al. 2016, Sec. 3.2; Wang et al. 2018, Sec. 5.3.
"""

import functools

import numpy as np

from tbnets.checks import text_ids
from tbnets.data.batches import EpochBatches, Examples
from tbnets.data.captions import summary
from tbnets.data.images import decode_images
from tbnets.features import hub
from tbnets.serving.endpoints import two_branch_endpoints
from tbnets.serving.served import load_saved_model
from tbnets.tasks import own_photos
from tbnets.tasks.retrieval_scores import (
    RetrievalScores,
    embed_images,
    example_captions,
    show_answers,
)
from tbnets.tasks.settings.settings import Settings
from tbnets.tasks.task import Task
from tbnets.training.retrieval_metrics import Embedder, PairScorer


class MatchingTask(Task):
    """Matches photos and sentences. Its examples are `batches.Examples`."""

    flag_groups = ("images", "batches")
    best_metric = "recall_sum"
    answers_queries = True

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self._graphs = functools.lru_cache(maxsize=1)(self._trace)
        self._preset = {}
        self._of_features = settings.image_encoder == "features"
        flags = ["image_features", "text_features"]
        if self.own_photos:  # Their cache has a store for each description.
            flags.remove("image_features")
        self.made_by = {flag: f"{flag}_made_by" for flag in flags}

    @property
    def extracts(self):
        """A description of the features that the run extracts, or ""."""
        photos, data = self.own_photos, self.data
        if not photos:
            return ""
        parts = data.parts("records", data.check_splits()).values()
        keys = {key for records in parts for key in records.image_ids}
        return (
            f"missing features of {len(keys)} photos would be extracted by "
            f"{self.settings.images.image_encoder} into {photos.cache}"
        )

    @property
    def usual_files(self):
        """Names of the flag files for a run on a folder of photos."""
        if not self.own_photos:
            return []
        split = self.data.existing_split("train_split")
        records = self.split(split).records
        network, loss = None, self.settings.loss
        if not self.settings.run.from_:
            network = own_photos.network_file(records.captions)
        has_triplets = loss is not None and loss.is_triplet_loss
        return own_photos.usual_files(records.num_images, network, has_triplets)

    def make(self):
        """Extracts features of the run's own photos, then runs recipes.

        The extraction comes first, because recipes for texts depend on
        `left_out`.
        """
        flags = "text_features", "trees"
        if self.own_photos and any(map(self.data.recipe_results, flags)):
            # These checks fail before the slow extraction.
            self.texts.check_preset()
            self.own_photos.check()
            self._extract()
        super().make()

    def check(self, queries=()):
        """Raises an error if splits, photos or features are missing."""
        super().check(queries)
        splits = self.data.check_splits()
        if self.own_photos:
            self.own_photos.check()
        else:
            self._check_images(splits, queries)
        self.texts.check(splits, queries)

    def _check_images(self, splits, queries):
        settings = self.settings
        if not self._of_features:
            self.data.parts("photos", splits)
            self._open_preset()
            return
        self.data.parts("images", splits)
        if settings.features.cnn_weights and settings.run.export:
            if queries:  # The results are drawn.
                self.data.parts("photos", splits[-1:])
            self.photo_reader(self.train.images.features.made_by)

    def fit(self):
        """Returns the `Fitted` values of the texts and images."""
        fitted = {"image_dim": None, "image_features_made_by": {}}
        if self.own_photos:
            self._extract()
            fitted["left_out"] = self.own_photos.left_out
        if self._of_features:
            images = self.train.images
            fitted["image_dim"] = images.shape[0]
            fitted["image_features_made_by"] = images.features.made_by
        if self._preset:
            fitted["image_preset"] = self._preset
        return super().fit() | fitted

    def _extract(self):
        splits = self.data.check_splits()
        self.own_photos.extract([self.split(name).records for name in splits])
        self.data.forget_splits()
        if not self.own_photos.is_resumed:
            self.data.cuts = None  # Draw splits from the remaining photos.
        self.data.check_splits()

    def resume(self, state, where):
        """Restores the state of a run, including the preset of the images."""
        super().resume(state, where)
        self._preset = state.fitted.get("image_preset", {})

    def notes(self, fitted):
        """Returns notes about splits, words and the folder of features."""
        notes = super().notes(fitted)
        sources = self.settings.sources()
        if not sources.scenes:
            splits = self.data.check_splits()
            records = self.data.parts("records", splits).values()
            form = f"read as {summary(records)}"
            notes["captions"] = f"{sources.captions}, {form}"
        if self.own_photos:
            notes |= self.own_photos.notes()
        if np.count_nonzero(self.train.records.captions_per_image) < 2:
            notes["warning"] = (
                "fewer than two training images have captions, so there are "
                "no negatives. Add images"
            )
        return notes

    def describe(self, network):
        """Returns a text with the encoders and the embedding size."""
        settings = self.settings
        images = settings.image_encoder
        if self.own_photos:
            images = settings.images.image_encoder
        texts = settings.texts.text_encoder
        return f"{images} + {texts} -> {network.embedding_dim}"

    def load(self, split, fitted):
        """Returns the `Examples` of a split."""
        split = self.split(split)
        records = split.records  # First: it names a split that does not exist.
        images = split.images if self._of_features else split.photos
        texts = self.texts.rows(split, fitted)
        same = self.settings.texts.equal_texts_match
        ids = text_ids(records.captions) if same else None
        return Examples(records, images, texts, ids)

    def batches(self, train):
        """Returns the `EpochBatches` of the training split."""
        return EpochBatches(train, **self.sampling)

    @property
    def sampling(self):
        """Arguments of `EpochBatches` that describe the sampling."""
        return {
            "images_per_batch": self.settings.batches.images_per_batch,
            "captions_per_image": self.settings.batches.captions_per_image,
            "seed": self.settings.run.seed,
            "image_size": self.image_size,
        }

    def _open_preset(self):
        name = self.settings.image_encoder
        if hub.is_hub(name) and not self._preset:
            name = hub.placed(name, *self.data.original_sources.starts)
            size = self.settings.images.image_size or None
            cnn = hub.package().build_hub_cnn(
                name, random=True, image_size=size
            )
            self._preset = {**cnn.preset.config(), "side": cnn.image_size}

    @functools.cached_property
    def image_size(self):
        """Side length of decoded photos in pixels, or the `PresetPhotos`."""
        if not self._preset:
            return self.settings.images.image_size
        converter = hub.package().converter_of(self._preset)
        return hub.package().PresetPhotos(converter, self._preset["side"])

    def photo_reader(self, made_by):
        """Returns the function that turns encoded photos into network input.

        It maps strings `[n]` to a float32 tensor `[n, ...]`. Returns None if
        the network takes features and `cnn_weights` is empty.
        """
        if not self._of_features:
            return lambda photos: decode_images(photos, self.image_size)
        return super().photo_reader(made_by)

    def _trace(self, network):
        learned = network.learned_similarity
        memory = self.memory_limit_mb
        judge = PairScorer(network, memory) if learned else None
        return Embedder(network, self.image_size), judge

    def scores(self, network, examples):
        """Returns the `RetrievalScores` of `Examples`."""
        embedder, judge = self._graphs(network)
        images, texts = embedder.images(examples), embedder.texts(examples)
        records, pairs, learned = examples.records, None, {}
        if judge:
            pairs = judge.scores(images, texts)
            learned = {"compare": judge.scores, "in_distances": False}
        photos = self.split(records.split).photo_folder
        memory = self.memory_limit_mb
        fields = images, texts, records, pairs, memory, photos
        return RetrievalScores(*fields, **learned)

    def endpoints(self, network, fitted):
        """Returns endpoints such as `embed_text`, `embed_image` and `score`."""
        reader = self.texts.reader(fitted)
        return two_branch_endpoints(
            network,
            reader,
            image_shape=network.input_shapes["images"][1:],
            read_photos=self.photo_reader(fitted["image_features_made_by"]),
            text_dim=None if reader else fitted["text_dim"],
        )

    @property
    def example_queries(self):
        """Captions of two images in `last` if the run has own photos, or []."""
        if not self.own_photos or self.settings.texts.text_features:
            return []
        return example_captions(self.last.records)

    def answer(self, saved_model, queries, folder):
        """Ranks the images in `last` for example queries.

        If the model takes photos, the results are drawn to `answers.png`.
        """
        model = load_saved_model(saved_model)
        records, embeddings = embed_images(model, self.last)
        photos = self.last.photo_folder if model.takes_photos else None
        path = folder / "answers.png"
        return show_answers(model, queries, records, embeddings, photos, path)
