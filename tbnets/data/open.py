"""Opens the data of a run, split by split.

    data = Data(settings.sources())
    data.split("train").records, data.split("train").images.batch([0])

`Data` resolves paths, finds splits and checks files.
"""

import collections
import functools
import os

from tbnets.data import splits as split_names
from tbnets.data.archives import is_file
from tbnets.data.batches import FeatureRows, FileNames
from tbnets.data.captions import caption_key, common_images
from tbnets.data.photos import (
    find_photo,
    find_photos,
)
from tbnets.data.phrases import read_phrases
from tbnets.data.sources import Sources
from tbnets.data.splits import WHOLE_FILE, NoSuchSplit
from tbnets.data.store.reader import (
    extraction_differences,
    load_features,
)
from tbnets.errors import InputError, MissingFileError
from tbnets.files import shown
from tbnets.text.trees import trees_of


class SplitData:
    """The data of a split. It is opened on first use and cached."""

    def __init__(self, data, name):
        self._data = data
        self.name = name

    @functools.cached_property
    def records(self):
        """The `CaptionedImages` of the split."""
        return self._data.read_records(self.name)

    @functools.cached_property
    def photos(self):
        """The `FileNames` of the photos. Raises an error if one is missing."""
        self._data.sources.file("images")
        folder = self._data.sources.photo_folder
        paths = [folder / name for name in self.records.names]
        missing = [path for path in paths if not is_file(path)]
        if missing:
            raise MissingFileError(
                "--images",
                f"contain every image of split {self.name}",
                f"--images={folder}, where {len(missing)} of {len(paths)} are "
                f"missing, first {missing[0].name}",
            )
        return FileNames(paths)

    @functools.cached_property
    def images(self):
        """The `FeatureRows` of the images."""
        if self._data.own:
            return self._data.own.load(self.records)
        features = self._data.open_features("image_features", self.name)
        return FeatureRows(features, features.rows(self.records.image_ids))

    @functools.cached_property
    def text_records(self):
        """The captions or phrases of the split, as `CaptionedImages`."""
        if self._data.of_phrases:
            return self.annotated.as_captions()
        return self.records

    @functools.cached_property
    def texts(self):
        """The `FeatureRows` of the captions or phrases, looked up by text.

        If the features have no ids, row i belongs to text i.
        """
        features = self._data.open_features("text_features", self.name)
        records = self.text_records
        if features.has_ids:
            keys = [caption_key(caption) for caption in records.captions]
            return FeatureRows(features, features.rows(keys))
        if len(features) != records.num_captions:
            raise InputError(
                "--text_features",
                f"have a row for each of the {records.num_captions} captions",
                f"{len(features)} rows in {features.path}",
            )
        return FeatureRows(features, range(len(features)))

    def trees(self):
        """Reads the `Tree`s of the captions or phrases. Does not cache them."""
        [path] = self._data.paths("trees")
        return trees_of(path, self.text_records.captions)

    @functools.cached_property
    def regions(self):
        """(store, rows): the region features, and each photo's row in them.

        `store` is a `data.store.reader.FeatureStore` that contains the sizes of
        the photos. `rows` is int64 `[num_images]`.
        """
        store = self._data.open_features("regions", self.name)
        fault = ""
        if getattr(store, "kind", "") != "regions" or not store.dim:
            fault = "no region features"
        elif store.sizes is None:
            fault = "no photo sizes"
        if fault:
            expected = "name a store with region features and photo sizes"
            received = f"{store.path}, which has {fault}"
            raise InputError("--regions", expected, received)
        return store, store.rows(self.records.image_ids)

    @functools.cached_property
    def annotated(self):
        """The `PhraseRegions`, with boxes in pixels of the annotated images."""
        return read_phrases(self._data.sources.file("phrases"), self.records)

    @functools.cached_property
    def phrases(self):
        """The `PhraseRegions`, with boxes in pixels of the photos on disk."""
        store, _ = self.regions
        rows = store.rows(self.annotated.images.image_ids)
        return self.annotated.in_photos(store.sizes[rows])

    @property
    def photo_folder(self):
        """The folder of the photos, or None if the first photo is missing."""
        folder, names = self._data.sources.photo_folder, self.records.names[:1]
        has_first = folder and any(find_photo(folder, name) for name in names)
        return folder if has_first else None


class NoPhotos(MissingFileError):
    """All images of a split were skipped."""


class Data:
    """The data of a run.

    Args:
        sources: the `Sources` of the run.
        own: extractor for a user's folder of photos, or None.
        of_phrases: whether the texts are phrases instead of captions.
        plan: function that is called as `plan(flag, data)` and returns a dict
            from each recipe in the flag to its `Recipe`; None if the
            flags name no recipes.
        photos_of: splits whose photos the recipes use; () for all.

    Attributes:
        original_sources: the argument `sources`, before scenes are rendered.
        cuts: result of `draw_cuts` if splits were drawn, otherwise None. A
            resumed run restores this value.
    """

    def __init__(
        self, sources, own=None, of_phrases=False, plan=None, photos_of=()
    ):
        self.original_sources = sources
        self.own = own
        self.of_phrases = of_phrases
        self._plan = plan or (lambda flag, data: {})
        self._photos_of = photos_of
        self._recipe_results = {}
        self._made_by = collections.defaultdict(list)
        self.cuts = None
        self._splits = {}
        self._features = {}

    @functools.cached_property
    def sources(self):
        """The `Sources`, including rendered scenes if they are requested."""
        return self.original_sources.rendered()

    @functools.cached_property
    def captions(self):
        """The `CaptionSource` of the run."""
        return self.sources.caption_source()

    def split(self, name):
        """Returns the `SplitData` for a name. The split need not exist."""
        return self._splits.setdefault(name, SplitData(self, name))

    def forget_splits(self):
        """Discards all opened splits. They are opened again on next use."""
        self._splits.clear()
        self._recipe_results.clear()

    def has(self, name):
        """Returns whether a split exists and has captions."""
        try:
            return self.split(name).records.num_captions > 0
        except (NoSuchSplit, NoPhotos):
            return False

    def check_splits(self):
        """Checks the run's splits and returns their names.

        Raises ValueError if a split does not exist or has no captions.
        """
        flags = ("train_split", "dev_split")
        names = [self.existing_split(flag) for flag in flags]
        test = self.original_sources.test_split
        # Only the default test split may be missing.
        if self.has(test) or test not in ("", Sources.test_split):
            names.append(self.existing_split("test_split"))
        return names

    def existing_split(self, flag):
        """Returns the split that a flag names.

        Raises ValueError if the split does not exist or has no captions.
        """
        split = getattr(self.original_sources, flag)
        try:
            records = self.split(split).records
        except NoSuchSplit as error:
            raise NoSuchSplit(
                split, error.names, error.path, f"--{flag}"
            ) from error
        if not records.num_captions:
            received = f"--{flag}={split}, without captions in {records.path}"
            raise InputError(
                f"--{flag}", "name a split with captions", received
            )
        return split

    def recipe_results(self, flag):
        """Returns a dict from each recipe in a flag to its `Recipe`."""
        if flag not in self._recipe_results:
            self._recipe_results[flag] = self._plan(flag, self)
        return self._recipe_results[flag]

    def paths(self, flag, split=None):
        """Returns the existing paths in a flag, after running its recipes.

        `split` replaces `{split}`.
        """
        sources, results = self.sources, self.recipe_results(flag)
        sources.value(flag)
        for result in results.values():
            result.make_if_missing()
        return tuple(
            os.fspath(
                results[item].path
                if item in results
                else sources.file(flag, item, split)
            )
            for item in sources.items(flag)
        )

    def parts(self, name, splits):
        """Returns a dict from each split to its attribute `name`."""
        return {split: getattr(self.split(split), name) for split in splits}

    def expect_made_by(self, flag, made_by, where, but=()):
        """Requires settings with which the features of a flag were extracted.

        `made_by` is the expected `Features.made_by`, read from the path
        `where`. Keys in `but` are ignored. The settings are compared when
        features are opened.
        """
        self._made_by[flag].append((made_by, where, but))

    def _check_made_by(self, flag, features):
        for made_by, where, but in self._made_by[flag]:
            values = (
                {key: value for key, value in each.items() if key not in but}
                for each in (made_by, features.made_by)
            )
            if lines := extraction_differences(*values, where, features.path):
                raise InputError(
                    f"--{flag}",
                    f"name features with the settings of {where}",
                    f"--{flag}={features.path}, which differ: "
                    f"{'; '.join(lines)}",
                )
        # The features of all splits must match.
        self._made_by[flag].append((features.made_by, features.path, ()))

    @functools.cached_property
    def photos(self):
        """The existing photos as a list of (id, path).

        If `photos_of` is not empty, only photos of these splits are listed.
        Raises an error if a photo of these splits, by default of the run's
        splits, is missing.
        """
        for split in self._photos_of or self.original_sources.run_splits:
            if self.has(split):
                self.split(split).photos  # noqa: B018  (Raises.)
        split_records = [self.split(split).records for split in self._photos_of]
        ids = {key for records in split_records for key in records.image_ids}
        photos = find_photos(self.sources.photo_folder, self.captions)
        return [
            (key, path)
            for key, path in photos
            if (not ids or key in ids) and is_file(path)
        ]

    def overlaps(self, names):
        """Describes which of the splits share images; "" if none do."""
        return "; ".join(
            f"{len(shared)} images in {a} and in {b}, first {shown(shared[0])}"
            for a, b, shared in common_images(self.parts("records", names))
        )

    def unused_splits(self, names):
        """Describes the splits of the caption file that are not in `names`.

        Splits with usual names, and files whose path contains `{split}`, are
        not described. Returns "" if there are none.
        """
        source, train = self.captions, self.sources.train_split
        if source.lists or source.pattern():
            return ""
        used = {part for name in names for part in name.split("+")}
        known = {*split_names.DRAWN, *used, WHOLE_FILE}
        return "; ".join(
            f"{name}. To train on it, pass --train_split={train}+{name}"
            for name in source.splits()
            if split_names.usual_name(name) not in known
        )

    def open_features(self, flag, split):
        """Opens, checks and caches the `Features` of a split.

        Raises ValueError or FileNotFoundError if features are missing, damaged
        or not finite, or if their extraction settings differ between splits.
        """
        paths = self.paths(flag, split)
        if paths not in self._features:
            results = self.recipe_results(flag).values()
            made = {os.fspath(result.path): result for result in results}
            features = load_features(
                *(made[path].open() if path in made else path for path in paths)
            )
            self._check_made_by(flag, features)
            self._features[paths] = features
        return self._features[paths]

    def read_records(self, split):
        """Reads the `CaptionedImages` of a split.

        If the caption file has no splits, they are drawn at random.
        """
        try:
            return self._read_split(split)
        except NoSuchSplit as error:
            # Captions without splits are divided, unless a flag names the split
            # "all".
            run_splits = self.original_sources.run_splits
            if error.names != (WHOLE_FILE,) or WHOLE_FILE in run_splits:
                raise
            if not split_names.can_be_drawn(split):
                known = split_names.DRAWN
                raise NoSuchSplit(split, known, error.path) from error
        records = self._read_split(WHOLE_FILE)
        if self.cuts is None:
            keys = records.identities or records.image_ids
            self.cuts = split_names.draw_cuts(keys, records.path)
        return split_names.drawn_split(records, split, self.cuts)

    def _read_split(self, split):
        records = self.captions.read(split)
        return self.own.usable_records(records) if self.own else records
