"""Extracts and caches a run's photo features, and names its usual flags.

A new run skips photos that are missing or cannot be decoded, and their
captions. Its checkpoints list these photos.
"""

import functools

from tbnets.data.archives import is_file
from tbnets.data.batches import FeatureRows
from tbnets.data.open import NoPhotos
from tbnets.data.photos import left_out_lines, list_files
from tbnets.data.pictures import KINDS
from tbnets.errors import InputError, MissingFileError
from tbnets.features import cache, extraction, hub, photo_features, text_presets
from tbnets.files import folder_beside, make_folder_of, shown
from tbnets.progress import say
from tbnets.tasks.photo_readers import weights_of_run
from tbnets.tasks.settings.settings import Settings

ABSENT = "does not exist"


SIZES = {
    120: "photos_120",
    600: "photos_600",
    3000: "photos_3000",
    float("inf"): "photos_many",
}
"""Maps an upper bound on the number of photos to a flag file."""


NETWORKS = "photos_words", "photos_sentences"
"""Flag files of the text network without and with a sentence encoder."""
WORDS_ONLY = f"configs/usual/{NETWORKS[0]}.flags"
"""Source of --text_encoder in a run without the sentence encoder."""
WITHOUT_ENCODER = f"""\
note: for English captions, install a sentence encoder (80 MB):
  {text_presets.INSTALL}
With it, 240 photos of Flickr8k gave a recall sum of 131 to 140, not 91."""
LEAST_SHARE = 0.8
"""Share of words by which captions are taken for English."""
_CAPTIONS = 1000


def network_file(captions):
    """Returns the member of `NETWORKS` for captions.

    The sentence encoder is used if its package is installed and the share of
    words that it knows whole is at least `LEAST_SHARE`, as in English captions.
    """
    words_only, with_encoder = NETWORKS
    if not text_presets.has_minilm():
        return words_only
    share = text_presets.minilm_share(captions[:_CAPTIONS])
    return with_encoder if share >= LEAST_SHARE else words_only


def usual_files(num_photos, network=NETWORKS[0], has_triplets=True):
    """Returns the names of the flag files of a run on features of photos.

    The files in `configs/usual` contain defaults for unset flags. `network` is
    a member of `NETWORKS`, or None if a model of --from defines the network.
    `has_triplets` tells whether the loss is a triplet loss.
    """
    size = next(SIZES[below] for below in SIZES if num_photos < below)
    names = ["photos_network"] if network else ["photos_from"]
    names += ["photos_training", *["photos_triplets"] * has_triplets, size]
    return names + [network] if network else names


class OwnPhotos:
    """The photos of a run and their features.

    `left_out` maps the ids of skipped images to reasons such as "does not
    exist". In a resumed run, `is_resumed` is true, and `left_out` does not
    change.
    """

    def __init__(self, settings: Settings):
        self.settings = settings
        self.sources = settings.sources()
        self.folder = self.sources.photo_folder
        chosen = settings.images.cache and self.sources.from_start(
            settings.images.cache
        )
        self.cache = folder_beside(self.folder, chosen)
        self.left_out, self.is_resumed, self._made_by = {}, False, None
        self._num_reported = 0

    def remember(self, fitted):
        """Restores the list of skipped photos and the feature description."""
        self.left_out, self.is_resumed = dict(fitted["left_out"]), True
        self.make_as(fitted["image_features_made_by"])

    def make_as(self, made_by):
        """Configures the extraction to match a trained model.

        Raises ValueError if its features are not from a single, known network.
        """
        if "cnn" not in made_by:
            expected = "be a model whose features one known network computes"
            advice = "Set --image_features to features like the model's."
            received = self.settings.run.from_
            raise InputError("--from", expected, received, advice)
        self._made_by = {k: made_by[k] for k in made_by if k != "store"}

    def usable_records(self, records):
        """Returns `records` without skipped images.

        In a new run, images without a photo file are also left out.
        """
        self.sources.file("images")
        ids = records.image_ids
        for image_id, name in zip(ids, records.names):
            if not self.is_resumed and not is_file(self.folder / name):
                self.left_out[image_id] = ABSENT
        rows = [row for row, key in enumerate(ids) if key not in self.left_out]
        if records.num_images and not rows:
            raise NoPhotos(self._explain_absence(records))
        return records.subset(rows)

    def _explain_absence(self, records):
        files, name = list_files(self.folder), records.file_name(0)
        reason = self.left_out[records.image_ids[0]]
        advice = f"Add whole photos: {KINDS}."
        if reason == ABSENT:
            advice = "Set --images to the folder from which the names start."
        return (
            "`--images` must contain photos of every split. Received: --images="
            f"{self.folder}, which holds {len(files)} files, but no photos for "
            f"the {records.num_images} names of split {records.split} in "
            f"{records.path}, first {shown(name)}, which {reason}. {advice}"
        )

    def check(self):
        """Builds the network to check its name and weights."""
        self._features  # noqa: B018  (builds it)

    @functools.cached_property
    def _features(self):
        if not self.settings.features.cnn_weights:
            expected = "be imagenet or a weights file of --image_encoder"
            raise InputError("--cnn_weights", expected, "--cnn_weights=")
        weights = weights_of_run(self.settings, self.sources)
        if known := self._made_by:
            return photo_features.open_photo_features(known, weights)
        name = self.settings.images.image_encoder
        name = hub.placed(name, *self.sources.starts)
        network = photo_features.build_named_cnn(name, weights)
        return photo_features.PhotoFeatures(network)

    def extract(self, splits):
        """Extracts the features that are not in the cache.

        `splits` are the `CaptionedImages` returned by `usable_records`. If a
        file is not a photo, a new run skips and reports it once; a resumed run
        raises FileNotFoundError.
        """
        names = {}
        for records in splits:
            names |= zip(records.names, records.image_ids)
        make_folder_of(self.folder, self.cache)
        paths = {name: self.folder / name for name in names}
        made_by = self._made_by or self._features.description()
        vectors = cache.VectorCache(self.cache, made_by["cnn"], made_by)

        def load():
            work, features = extraction.extract_photos, self._features
            return features.dim, functools.partial(work, features=features)

        vectors.complete(paths, "extracting features", load)
        self._store = vectors.features()
        problems = self._store.failed
        if problems and self.is_resumed:
            name, reason = next(iter(problems.items()))
            expected = "contain the photos with which the run was started"
            received = f"{self.folder} without {len(problems)} photos; "
            received += f"{shown(name)} {reason}"
            raise MissingFileError("--images", expected, received)
        self.left_out |= {names[k]: reason for k, reason in problems.items()}
        if not self.is_resumed and len(self.left_out) > self._num_reported:
            self._num_reported = len(self.left_out)
            self._report(len(names) + len(self.left_out) - len(problems))

    def _report(self, num_images):
        reasons = self.left_out.items()
        ordered = dict(sorted(reasons, key=lambda item: item[1] == ABSENT))
        for line in left_out_lines(ordered, (), num_images):
            say(line)

    def notes(self):
        """Returns notes on the folders and on the number of skipped images."""
        notes = {"photos": f"{self.folder}, features kept in {self.cache}"}
        if self.left_out:
            notes["left out"] = f"{len(self.left_out)} images, see left_out.txt"
        return notes

    def load(self, records):
        """Returns the `FeatureRows` of records returned by `usable_records`."""
        self.extract([records])
        return FeatureRows(self._store, self._store.rows(records.names))
