"""Image-sentence matching: given a photo, the sentence, and the other way."""

import numpy as np

from tbnets.data import drawn_splits
from tbnets.data.batches import EpochBatches, num_batches
from tbnets.data.examples import FeatureRows, refuse_broken_images
from tbnets.data.splits import WHOLE_FILE, NoSuchSplit
from tbnets.evaluation.tables import format_table
from tbnets.rounding import per_cent, rounded
from tbnets.serving import search
from tbnets.serving.image_endpoints import two_branch_endpoints
from tbnets.serving.served_model import load_saved_model
from tbnets.tasks import (
    inputs,
    matching_scores,
    parts,
    plan,
    recipes,
    text_inputs,
    views,
)
from tbnets.tasks.fitted import SIDES
from tbnets.tasks.matching_scores import PAIR_SCORES
from tbnets.tasks.own_photos import NoPhotos, OwnPhotos, has_own_photos
from tbnets.tasks.task import FEW_POINTS, Task
from tbnets.text.vocabulary import Vocabulary
from tbnets.training import health


class MatchingTask(Task):
    """Ranks sentences for photos and photos for sentences.

    Its examples are `data.examples.Examples`; its scores are embeddings.

    Source: Wang et al. 2016, Sec. 3.2; Wang et al. 2018, Sec. 5.3.
    """

    best_metric = "recall_sum"
    flag_groups = ("captions", "images", "features", "texts", "batches")
    fits = SIDES
    measure_options = ("protocol", "text_to_text")
    about_pictures = views.WHAT_IS_SHOWN
    answers_queries = True

    def __init__(self, settings):
        super().__init__(settings)
        self.own_photos = None
        self._records = {}
        self._cuts = None
        self._scorer = None
        if has_own_photos(settings):
            self.own_photos = OwnPhotos(settings)

    def records(self, split):
        """Returns the `CaptionedImages` of a split; reads each once."""
        if split not in self._records:
            try:
                records = self._kept(inputs.load_records(self.settings, split))
            except NoSuchSplit as error:
                if not self._draws(split, error):
                    raise
                records = self._draw(split)
            self._records[split] = records
        return self._records[split]

    def _kept(self, records):
        """Returns records without photos that are left out."""
        return self.own_photos.kept(records) if self.own_photos else records

    def _draws(self, split, error):
        """Tells whether a split that the captions have not is drawn."""
        settings = self.settings
        told = (settings.train_split, settings.dev_split, settings.test_split)
        return (
            error.names == (WHOLE_FILE,)
            and WHOLE_FILE not in told
            and drawn_splits.can_be_drawn(split)
        )

    def _draw(self, split):
        """Returns the `CaptionedImages` of a drawn split."""
        records = self._kept(inputs.load_records(self.settings, WHOLE_FILE))
        if self._cuts is None:
            self._cuts = drawn_splits.draw_cuts(records.image_ids, records.path)
        return drawn_splits.drawn_split(records, split, self._cuts)

    def _images(self, records):
        """Returns the image side of `Examples` for some records."""
        if self.own_photos:
            return self.own_photos.load(records)
        return inputs.load_images(self.settings, records)

    def recipe(self):
        """Returns the recipe of a run on the photos of a folder alone."""
        if not self.own_photos:
            return "", {}
        split = plan.existing_split(self, "train_split")
        count = self.records(split).num_images
        return f"{count} photos", recipes.recipe(count)

    def has_split(self, split):
        """Tells whether the captions have a split with images and captions."""
        try:
            return self.records(split).num_captions > 0
        except (NoSuchSplit, NoPhotos):
            return False

    def check_plan(self, queries=()):
        """Refuses a run whose splits, photos or features are not there."""
        super().check_plan(queries)
        plan.check_plan(self, queries)

    @property
    def last_split(self):
        """The split that a run reports on at its end: test, or else dev."""
        settings = self.settings
        if self.has_split(settings.test_split):
            return settings.test_split
        return settings.dev_split

    def fit_data(self):
        """Returns the training split's words and what its features are.

        Returns:
            dict of `words`, [] with text features; `longest_text`, the number
            of words of the longest caption, where there are words;
            `image_dim` and
            `text_dim`, the sizes of precomputed features, None where there
            are none; `image_features_made_by` and `text_features_made_by`,
            what features were made with, {} where that is unknown.
        """
        settings = self.settings
        if self.own_photos:
            self._extract()
        records = self.records(settings.train_split)
        images = self._images(records)
        of_images = isinstance(images, FeatureRows)
        fitted = {
            "words": [],
            "image_dim": images.shape[0] if of_images else None,
            "text_dim": None,
            "image_features_made_by": (
                images.features.made_by if of_images else {}
            ),
            "text_features_made_by": {},
        }
        if settings.text_encoder == "features":
            rows = inputs.load_text_features(settings, records)
            fitted["text_dim"] = rows.shape[0]
            fitted["text_features_made_by"] = rows.features.made_by
        else:
            vocabulary, longest = inputs.build_vocabulary(settings, records)
            fitted["words"] = list(vocabulary.words)
            fitted["longest_text"] = longest
            fitted |= text_inputs.load_word_vectors(
                settings, vocabulary, records.captions
            )
        if self.own_photos:
            fitted["left_out"] = self.own_photos.left_out
        if self._cuts:
            fitted["split_cuts"] = self._cuts
        return fitted

    def _extract(self):
        """Extracts features of all splits; then knows what is left out."""
        splits, begun = plan.check_splits(self), self.own_photos.has_begun
        self.own_photos.extract([self.records(split) for split in splits])
        self._records.clear()
        if not begun:  # Then splits are drawn of the photos that are kept.
            self._cuts = None
        plan.check_splits(self)

    def remember(self, fitted):
        """Takes over how splits were drawn, and which photos are left out."""
        self._cuts = fitted.get("split_cuts")
        if self.own_photos:
            self.own_photos.remember(fitted)

    def check_data(self, fitted, splits, where):
        """Refuses features that were made otherwise than before."""
        for flag in ("image_features", "text_features"):
            made_by = fitted.get(f"{flag}_made_by")
            if flag == "image_features" and self.own_photos:
                continue  # The cache has one store for each way of making.
            if made_by:
                inputs.check_features(
                    self.settings, splits, made_by, where, flag
                )

    def notes(self, fitted):
        """Returns how splits were drawn, where features are, and words."""
        splits = plan.check_splits(self)
        notes = plan.overlap_notes(self, splits)
        if self._cuts:
            sizes = [
                f"{self.records(name).num_images} {name}" for name in splits
            ]
            notes["splits"] = (
                f"drawn by image, as the captions tell none: {', '.join(sizes)}"
            )
        if self.own_photos:
            notes |= self.own_photos.notes()
        return notes | text_inputs.notes(fitted)

    def load(self, split, fitted):
        """Returns the `Examples` of a split."""
        records = self.records(split)
        return text_inputs.load_examples(
            self.settings, records, self._images(records), _vocabulary(fitted)
        )

    def counts(self, examples):
        """Returns the numbers of images and captions of a split."""
        records = examples.records
        return {"images": records.num_images, "captions": records.num_captions}

    def describe(self, network):
        """Returns what reads images and texts, and the embeddings' size."""
        settings = self.settings
        images = settings.cnn if self.own_photos else settings.image_encoder
        return f"{images} + {settings.text_encoder} -> {network.embedding_dim}"

    def adapt(self, network, train):
        """Measures the training features where the image encoder asks."""
        if getattr(network.image_encoder, "needs_statistics", False):
            network.image_encoder.adapt(train.images.chunks())

    def steps_per_epoch(self, train):
        """Returns how many batches an epoch has."""
        return num_batches(train.records, self.settings.images_per_batch)

    def batches(self, train):
        """Returns the `EpochBatches` of the training split."""
        settings = self.settings
        return EpochBatches(
            train,
            settings.images_per_batch,
            settings.captions_per_image,
            settings.seed,
            settings.image_size,
        )

    def explain_failure(self, train):
        """Raises the error that names a photo that does not decode."""
        refuse_broken_images(train.images)

    def scores(self, network, examples):
        """Embeds a split.

        Returns:
            dict as `matching_scores` describes it.
        """
        if self._scorer is None or self._scorer.network is not network:
            self._scorer = matching_scores.Scorer(network, self.settings)
        return self._scorer.scores(examples)

    def measure(self, scores, protocol="full", text_to_text=True):
        """Returns the metrics of `evaluation`."""
        memory = self.settings.evaluate_memory
        return matching_scores.measure(scores, protocol, memory, text_to_text)

    def combine(self, scores, other, others, split, weight):
        """Returns what `matching_scores.combine` makes of two runs."""
        records = self.records(split)
        found, learned = other.pair_scores(others, records, split)
        return matching_scores.combine(scores, found, weight, learned)

    def pair_scores(self, scores, records, split):
        """Returns the `PairScores` of a split, and whether they are logits."""
        own = self.records(split)
        matching_scores.check_same_examples(records, own, split)
        learned = PAIR_SCORES in scores
        return matching_scores.as_pair_scores(scores), learned

    def embeddings(self, scores):
        """Returns the embeddings of both sides, and `caption_to_image`."""
        if PAIR_SCORES in scores:
            return {}
        return {name: scores[name] for name in matching_scores.EMBEDDINGS}

    def health(self, scores):
        """Returns `embedding_health` of both sides."""
        return matching_scores.health_of_sides(scores)

    def pictures(self, scores, examples):
        """Returns a few captions with their best images, drawn.

        Without photos, as with features alone, there are none.
        """
        records = examples.records
        folder = views.shown_photos(self.settings, records)
        if folder is None:
            return {}
        return views.draw_answered_captions(scores, records, folder)

    def points(self, scores, examples, most=FEW_POINTS):
        """Returns images and captions of a split as points of one space.

        Where a network learns to compare, both sides share no space.
        """
        if PAIR_SCORES in scores:
            return None
        records = examples.records
        folder = views.shown_photos(self.settings, records)
        return views.image_and_caption_points(scores, records, folder, most)

    def headline(self, row):
        """Returns an epoch's recall@1 both ways and its recall sum."""
        return (
            f"dev R@1 {per_cent(row['dev/image_to_text/recall_at_1']):>5}"
            f" {per_cent(row['dev/text_to_image/recall_at_1']):>5}"
            f"  recall sum {rounded(row['dev/recall_sum']):>6}"
        )

    def diagnose(self, row):
        """Returns a warning when the embeddings have collapsed, or None."""
        settings = self.settings
        train = self.records(settings.train_split)
        if np.count_nonzero(train.captions_per_image) < 2:
            return (
                "the training split has one image with captions: without "
                "others there is nothing to tell it from. Add images"
            )
        return health.diagnose(row, settings.margin, settings.reduction)

    def table(self, metrics, title=""):
        """Returns recalls and ranks as an aligned table."""
        return format_table(metrics, title)

    def endpoints(self, network, fitted):
        """Returns `embed_text`, `embed_image`, `score` and so on."""
        reader = text_inputs.build_text_reader(self.settings, fitted)
        shapes = parts.input_shapes(self.settings, fitted)
        return two_branch_endpoints(
            network,
            reader,
            image_shape=shapes["images"][1:],
            read_photos=inputs.build_photo_reader(self.settings, fitted),
            text_dim=None if reader else fitted["text_dim"],
        )

    def example_queries(self):
        """Returns two captions of the last split, of a run on own photos."""
        if not self.own_photos or self.settings.text_encoder == "features":
            return []
        return views.example_captions(self.records(self.last_split))

    def served_scores(self, model, split):
        """Embeds a split by an exported model, from what a user has.

        Args:
            model: a `served_model.ServedModel` that takes captions.
            split: name of the split.

        Returns:
            dict, as that of `scores`.
        """
        records = self.records(split)
        if model.takes_image_bytes:
            images = inputs.load_photos(self.settings, records).paths
        else:
            rows = inputs.load_images(self.settings, records)
            images = np.concatenate(list(rows.chunks()))
        return matching_scores.served_scores(model, images, records)

    def answer(self, saved_model, queries, folder, top=5):
        """Ranks the images of the last split for example queries.

        An image is a hit if one of its captions has the query's words in
        their order; a query of which that is true for no image is answered
        without telling hits. Where the network takes photos, the answers are
        also drawn, as `answers.png` in the run's folder.
        """
        model = load_saved_model(saved_model)
        records = self.records(self.last_split)
        rows, photos = range(records.num_images), None
        if model.takes_image_bytes:
            photos = inputs.photo_folder(self.settings)
            paths = {photos / records.file_name(row): row for row in rows}
            found, embeddings = search.embed_photos(model, photos, list(paths))
            rows = [paths[photos / name] for name in found]
        else:
            images = self._images(records)
            features = np.concatenate(list(images.chunks()))
            embeddings = search.embed(model.embed_images, features, "image")
        return views.show_answers(
            model,
            queries,
            records.subset(rows),
            embeddings,
            top,
            photos,
            folder / "answers.png",
        )


def _vocabulary(fitted):
    """Returns the `Vocabulary` that was fitted; None with text features."""
    return Vocabulary(fitted["words"]) if fitted["words"] else None
