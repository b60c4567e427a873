"""One split of a run: its records, images, texts, regions, phrases, trees."""

import functools

from tbnets.checked_files import shown
from tbnets.data.captions import caption_key
from tbnets.data.examples import FeatureRows, FileNames
from tbnets.data.photos import find_photo
from tbnets.data.phrases import read_phrases
from tbnets.errors import InputError, MissingFileError
from tbnets.text.tree_files import trees_of


class SplitData:
    """One split of a run; each part is opened once, when it is asked for.

    Args:
        data: the `Data`.
        name: of the split.
    """

    def __init__(self, data, name):
        self._data = data
        self.name = name

    @functools.cached_property
    def records(self):
        """The images' ids, the captions and who belongs to whom."""
        return self._data.read_records(self.name)

    @functools.cached_property
    def photos(self):
        """The `FileNames` of the photos, every one of which is there."""
        sources = self._data.sources
        sources.value("images")
        folder = sources.photo_folder
        if not folder.is_dir():
            raise sources.nowhere("images", folder)
        paths = [folder / name for name in self.records.names]
        missing = [path for path in paths if not path.is_file()]
        if missing:
            raise MissingFileError(
                f"`--images` must hold every image of split {self.name}. "
                f"Received: --images={folder}, where {len(missing)} of "
                f"{len(paths)} are missing, first {missing[0].name}. Complete "
                "the folder, or take the images out of the captions."
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
    def said(self):
        """`CaptionedImages` whose captions are the texts: maybe phrases."""
        if self._data.of_phrases:
            return self.phrases.as_captions()
        return self.records

    @functools.cached_property
    def texts(self):
        """The `FeatureRows` of what is said.

        Where features have ids, these are the texts, and rows are found by
        them; an array without ids has a row a text, in their order.
        """
        features = self._data.open_features("text_features", self.name)
        said = self.said
        if features.has_ids:
            keys = [caption_key(caption) for caption in said.captions]
            if missing := features.missing(keys):
                raise InputError(
                    "`--text_features` must hold every caption of split "
                    f"{said.split}. Received: {features.path} without "
                    f"{len(missing)} of {len(keys)} captions of {said.path}, "
                    f"first {shown(missing[0])}; {features.looks()}. Extract "
                    "those of these captions. Of an array in the order of the "
                    "captions, take its file of ids away."
                )
            return FeatureRows(features, features.rows(keys))
        if len(features) != said.num_captions:
            raise InputError(
                "`--text_features` must hold a row for each caption. Received: "
                f"{len(features)} rows in {features.path}, {said.num_captions} "
                f"captions in {said.path}. Extract them again."
            )
        return FeatureRows(features, range(len(features)))

    def trees(self):
        """Returns the `Tree`s of what is said; they are read anew."""
        return trees_of(self._data.file("trees"), self.said.captions)

    @functools.cached_property
    def regions(self):
        """The regions of the photos: (store, rows).

        A `data.store.shards.FeatureStore`, which tells the sizes of photos, and
        int64 `[num_images]`, the row of each photo.
        """
        store = self._data.open_features("regions", self.name)
        found = ""
        if getattr(store, "kind", "") != "regions" or not store.dim:
            found = "no features of regions"
        elif store.sizes is None:
            found = "no sizes of photos"
        if found:
            raise InputError(
                "`--regions` must name features of regions and sizes of photos."
                f" Received: {store.path}, with {found}. Name a "
                "recipe, such as features/regions_grid.flags, or a store of "
                "tools/extract_image_features.py --regions."
            )
        return store, store.rows(self.records.image_ids)

    @functools.cached_property
    def marked(self):
        """The `PhraseRegions` as they were annotated, in whatever pixels."""
        return read_phrases(self._data.sources.file("phrases"), self.records)

    @functools.cached_property
    def phrases(self):
        """The `PhraseRegions`, in pixels of the photos."""
        store, _ = self.regions
        rows = store.rows(self.marked.images.image_ids)
        return self.marked.in_photos(store.sizes[rows])

    @property
    def photo_folder(self):
        """The folder of the photos; None where they are not at hand.

        The first of them tells whether there are any.
        """
        sources, records = self._data.sources, self.records
        if not sources.images or not records.num_images:
            return None
        first = find_photo(sources.photo_folder, records.file_name(0))
        return None if first is None else sources.photo_folder
