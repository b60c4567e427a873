"""Image-sentence matching: given a photo, the sentence, and the other way."""

import numpy as np

from tbnets.evaluation.tables import format_table
from tbnets.rounding import per_cent, rounded
from tbnets.serving import search
from tbnets.serving.image_endpoints import two_branch_endpoints
from tbnets.serving.served_model import load_saved_model
from tbnets.tasks import (
    inputs,
    matching_scores,
    parts,
    text_inputs,
    views,
)
from tbnets.tasks.matching_data import MatchingData
from tbnets.tasks.matching_scores import PAIR_SCORES
from tbnets.tasks.task import FEW_POINTS, Task
from tbnets.training import health


class MatchingTask(Task):
    """Ranks sentences for photos and photos for sentences.

    Its examples are `data.examples.Examples`; its scores are embeddings.

    Source: Wang et al. 2016, Sec. 3.2; Wang et al. 2018, Sec. 5.3.
    """

    best_metric = "recall_sum"
    flag_groups = ("captions", "images", "features", "texts", "batches")
    measure_options = ("protocol", "text_to_text")
    about_pictures = views.WHAT_IS_SHOWN
    answers_queries = True
    make_data = MatchingData

    def __init__(self, settings):
        super().__init__(settings)
        self._scorer = None

    def describe(self, network):
        """Returns what reads images and texts, and the embeddings' size."""
        settings = self.settings
        images = (
            settings.cnn if self.data.own_photos else settings.image_encoder
        )
        return f"{images} + {settings.text_encoder} -> {network.embedding_dim}"

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
        records = self.data.records(split)
        found, learned = other.pair_scores(others, records, split)
        return matching_scores.combine(scores, found, weight, learned)

    def pair_scores(self, scores, records, split):
        """Returns the `PairScores` of a split, and whether they are logits."""
        own = self.data.records(split)
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
        train = self.data.records(settings.train_split)
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
        if not self.data.own_photos or self.settings.text_encoder == "features":
            return []
        return views.example_captions(self.data.records(self.data.last_split))

    def served_scores(self, model, split):
        """Embeds a split by an exported model, from what a user has.

        Args:
            model: a `served_model.ServedModel` that takes captions.
            split: name of the split.

        Returns:
            dict, as that of `scores`.
        """
        records = self.data.records(split)
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
        records = self.data.records(self.data.last_split)
        rows, photos = range(records.num_images), None
        if model.takes_image_bytes:
            photos = inputs.photo_folder(self.settings)
            paths = {photos / records.file_name(row): row for row in rows}
            found, embeddings = search.embed_photos(model, photos, list(paths))
            rows = [paths[photos / name] for name in found]
        else:
            images = self.data.images(records)
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
